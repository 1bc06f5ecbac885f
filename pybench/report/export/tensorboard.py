"""A run as TensorBoard event files: a folder for each attempt, with its steps and its power trace."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from pybench.core.metrics import step_values
from pybench.files.run.folder import attempt_name
from pybench.model.errors import UsageError
from pybench.model.record import Record
from pybench.model.suite import Point
from pybench.model.text import plural
from pybench.power.chart import power_samples
from pybench.power.trace import PowerTrace
from pybench.report.export.perfetto import realtime_offset_ns
from pybench.report.run.view import RunView

Scalar = tuple[str, int, float, float]
"""Tag, step, value, wall-clock time in s."""


def export(view: RunView, out: Path) -> str:
    """Write every good attempt of a run below ``out``, a folder for each.

    Steps are numbered as measured, power samples in order. Raises ``UsageError`` where the package is absent, ``out``
    can't be written, or the results have no folder.
    """
    view.require_attempts("tensorboard")
    points = {point.id: point for point in view.manifest.plan.points} if view.manifest else {}
    try:
        from tensorboard.compat.proto import event_pb2, summary_pb2  # noqa: PLC0415
        from tensorboard.summary.writer.event_file_writer import EventFileWriter  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(
            f"--format tensorboard needs the package tensorboard ({error}): pip install tensorboard"
        ) from error
    for record in view.good_records:
        folder = out / attempt_name(record.point_id, record.attempt)
        try:
            for earlier in folder.glob("events.out.tfevents.*"):  # a second export would add to the first
                earlier.unlink()
            writer = EventFileWriter(str(folder))
            for tag, step, value, at_s in scalars(points[record.point_id], record, view.trace(record.trace)):
                values = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, simple_value=value)])
                writer.add_event(event_pb2.Event(wall_time=at_s, step=step, summary=values))
            writer.close()
        except OSError as error:
            raise UsageError(f"{folder}: cannot write event files: {error.strerror}") from error
    written = plural(len(view.good_records), "attempt")
    return f"{written} written; look at them with: tensorboard --logdir {shlex.quote(str(out))}"


def scalars(point: Point, record: Record, trace: PowerTrace | None) -> Iterator[Scalar]:
    """Metrics of each measured step, the losses from the first warm-up step on, the watts of each GPU.

    Wall-clock times are those of the trace for Perfetto.
    """
    steps = record.ranks[0].steps
    offset_ns = realtime_offset_ns(record, trace) or 0
    for step, values in enumerate(step_values(point, record)):
        at_s = (steps[step].end_ns + offset_ns) / 1e9
        yield from ((f"step/{name}", step, value, at_s) for name, value in values.items() if value is not None)
    first_s = (steps[0].start_ns + offset_ns) / 1e9
    yield from (("loss_from_first_step", step, loss, first_s) for step, loss in enumerate(record.ranks[0].losses))
    if trace:
        for gpu in trace.gpus:
            times_ns, power_mw = power_samples(gpu, trace)
            tag = gpu.uuid if gpu.index is None else f"gpu{gpu.index}"
            for step, (t_ns, value) in enumerate(zip(times_ns, power_mw, strict=True)):
                yield f"power_w/{tag}", step, float(value) / 1e3, (int(t_ns) + offset_ns) / 1e9
