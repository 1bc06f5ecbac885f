"""A run as TensorBoard event files: a folder for each attempt, with its steps and its power trace."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from pybench.compute.energy.times import series_times_ns
from pybench.judge.formulas.registry import step_values
from pybench.machine.trace_file import read_trace
from pybench.model.errors import UsageError
from pybench.model.manifest import Manifest
from pybench.model.record import Record
from pybench.model.suite import Point
from pybench.model.trace import MISSING, GpuTrace, PowerTrace
from pybench.store.journal import RunFolder

Scalar = tuple[str, int, float, float]
"""Tag, step, value, wall-clock time in s."""


def export(folder: RunFolder, out: Path) -> int:
    """Write every good attempt of a run below ``out``; returns how many.

    Steps are numbered as measured, power samples in order. Raises ``UsageError`` where the package is absent or ``out``
    can't be written.
    """
    manifest: Manifest = folder.read_manifest()
    points = {point.id: point for point in manifest.plan.points}
    writer = _writer()
    good = [record for record in folder.records() if record.ok and record.point_id in points]
    for record in good:
        name = folder.attempt(record.point_id, record.attempt).name
        try:
            _write(writer, out / name, scalars(points[record.point_id], record, folder.path))
        except OSError as error:
            raise UsageError(f"{out / name}: cannot write event files: {error.strerror}") from error
    return len(good)


def scalars(point: Point, record: Record, path: Path) -> Iterator[Scalar]:
    """Metrics of each measured step, the losses from the first warm-up step on, the watts of each GPU.

    The attempt's start, known to the second, is laid on the earliest thing its clock knows; from there on times are
    exact.
    """
    trace = read_trace(path / record.trace) if record.trace else None
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
    """The driver's series, or polled power where there is none."""
    if len(gpu.series.power_mw):
        times_ns, milliwatts = series_times_ns(gpu.series, trace.offsets), np.asarray(gpu.series.power_mw)
    else:
        times_ns, milliwatts = np.asarray(gpu.polled.t_ns), np.asarray(gpu.polled.instant_mw)
    known = milliwatts != MISSING
    for step, (t_ns, value) in enumerate(zip(times_ns[known], milliwatts[known], strict=True)):
        yield f"power_w/gpu{gpu.index}", step, float(value) / 1e3, began_s + float(t_ns - first_ns) / 1e9


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
