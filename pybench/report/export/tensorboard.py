"""A run as TensorBoard event files: a folder for each attempt, with its steps and its power trace."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from pybench.core.formulas.registry import step_values
from pybench.files.run.folder import attempt_name
from pybench.model.errors import UsageError
from pybench.model.record import Record
from pybench.model.suite import Point
from pybench.model.text import plural
from pybench.power.chart import power_samples
from pybench.power.trace import GpuTrace, PowerTrace
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
    writer = _writer()
    for record in view.good_records:
        folder = out / attempt_name(record.point_id, record.attempt)
        try:
            _write(writer, folder, scalars(points[record.point_id], record, view.trace(record.trace)))
        except OSError as error:
            raise UsageError(f"{folder}: cannot write event files: {error.strerror}") from error
    written = plural(len(view.good_records), "attempt")
    return f"{written} written; look at them with: tensorboard --logdir {shlex.quote(str(out))}"


def scalars(point: Point, record: Record, trace: PowerTrace | None) -> Iterator[Scalar]:
    """Metrics of each measured step, the losses from the first warm-up step on, the watts of each GPU.

    Wall-clock times are the attempt's start, which is known to the second, plus exact differences of its own clock; the
    earliest step or sample stands at the start.
    """
    steps = record.ranks[0].steps
    first_ns = min([steps[0].start_ns, *([trace.start_ns] if trace else [])])
    began_s = datetime.fromisoformat(record.started_utc).timestamp()
    for step, values in enumerate(step_values(point, record)):
        at_s = began_s + (steps[step].end_ns - first_ns) / 1e9
        yield from ((f"step/{name}", step, value, at_s) for name, value in values.items() if value is not None)
    yield from (("loss_from_first_step", step, loss, began_s) for step, loss in enumerate(record.ranks[0].losses))
    if trace:
        for gpu in trace.gpus:
            yield from _watts(gpu, trace, began_s, first_ns)


def _watts(gpu: GpuTrace, trace: PowerTrace, began_s: float, first_ns: int) -> Iterator[Scalar]:
    times_ns, power_mw = power_samples(gpu, trace)
    tag = gpu.uuid if gpu.index is None else f"gpu{gpu.index}"
    for step, (t_ns, value) in enumerate(zip(times_ns, power_mw, strict=True)):
        yield f"power_w/{tag}", step, float(value) / 1e3, began_s + float(t_ns - first_ns) / 1e9


def _writer() -> Any:  # noqa: ANN401 - an optional package without types
    try:
        from tensorboard.compat.proto import event_pb2, summary_pb2  # noqa: PLC0415
        from tensorboard.summary.writer.event_file_writer import EventFileWriter  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(
            f"--format tensorboard needs the package tensorboard ({error}): pip install 'pybench[tensorboard]'"
        ) from error
    return EventFileWriter, event_pb2.Event, summary_pb2.Summary


def _write(writer: Any, folder: Path, found: Iterator[Scalar]) -> None:  # noqa: ANN401 - as above
    open_writer, event, summary = writer
    files = open_writer(str(folder))
    for tag, step, value, at_s in found:
        values = summary(value=[summary.Value(tag=tag, simple_value=value)])
        files.add_event(event(wall_time=at_s, step=step, summary=values))
    files.close()
