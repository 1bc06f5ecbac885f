"""What held clocks down over all attempts: heat and power brakes are faults, power limits are told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pybench.compute.energy.flags import THROTTLE_REASONS
from pybench.judge.clock_events import POWER_CAP, event_words
from pybench.judge.node.ranks import gpu_name
from pybench.judge.node.run_check import run_check, unknown
from pybench.model.machine import GpuInfo, Machine
from pybench.model.record import Record
from pybench.model.results import NodeCheck


def throttling(records: Sequence[Record], machine: Machine) -> Iterator[NodeCheck]:
    """Clocks held down by heat or a power brake. A board at its power limit is at work: told, not blamed.

    A GPU of which nothing was read does not pass.
    """
    seen = _reasons(records)
    if all(reasons is None for reasons in seen.values()):
        yield unknown("throttling", "no clock event reasons were read while measuring")
        return
    known = {uuid: reasons for uuid, reasons in seen.items() if reasons is not None}
    for uuid in seen.keys() - known.keys():
        reason = "no clock event reasons of it were read while measuring"
        yield run_check("throttling", gpu_name(uuid, machine), "no_expectation", reason)
    slowed = {uuid: reasons for uuid, reasons in known.items() if reasons & THROTTLE_REASONS}
    for uuid, reasons in slowed.items():
        words = ", ".join(event_words(reasons & THROTTLE_REASONS))
        yield run_check("throttling", gpu_name(uuid, machine), "fail", f"{words}, {_coverage(records)}")
    if not slowed:
        reason = f"no thermal slowdown and no power brake, {_coverage(records)}; {_power_limits(known, machine)}"
        subject = "all GPUs" if len(known) == len(seen) else "all other GPUs"
        yield run_check("throttling", subject, "pass", reason)


def _reasons(records: Sequence[Record]) -> dict[str, int | None]:
    """Every reason that was seen, by UUID; ``None`` where nothing was read."""
    seen: dict[str, int | None] = {}
    for gpu in (gpu for record in records for gpu in record.conditions):
        before, now = seen.get(gpu.uuid), gpu.clock_event_reasons
        seen[gpu.uuid] = before if now is None else now | (before or 0)
    return seen


def _coverage(records: Sequence[Record]) -> str:
    """A point may be over before the sensor's next reading: how many were not."""
    measured = {record.point_id for record in records if record.ok}
    read = {
        record.point_id for record in records if any(gpu.clock_event_reasons is not None for gpu in record.conditions)
    }
    return f"read in {len(read)} of {len(measured)} points"


def _power_limits(known: Mapping[str, int], machine: Machine) -> str:
    """Which GPUs met their power limit, and whose limit somebody has lowered."""
    capped = [uuid for uuid, reasons in known.items() if reasons & POWER_CAP]
    if not capped:
        return "none met its power limit"
    names = f"all {len(known)} GPUs" if len(capped) == len(known) else ", ".join(gpu_name(u, machine) for u in capped)
    lowered = [text for gpu in machine.gpus if gpu.uuid in capped and (text := _lowered(gpu))]
    return "; ".join((f"met their power limit: {names}", *lowered))


def _lowered(gpu: GpuInfo) -> str | None:
    limit_w, default_w = gpu.power_limit_w, gpu.power_limit_default_w
    if limit_w is None or default_w is None or limit_w >= default_w:
        return None
    return f"a cause: GPU {gpu.index} is limited to {limit_w:.0f} W, below its default of {default_w:.0f} W"
