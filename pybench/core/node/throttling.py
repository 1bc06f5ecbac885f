"""What held clocks down over all attempts: heat and power brakes are faults, power limits are listed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pybench.core.clock_events import POWER_LIMIT
from pybench.core.gpu_states import gpu_states
from pybench.core.node.ranks import gpu_name
from pybench.core.node.run_check import run_check, unknown
from pybench.model.machine import GpuInfo, Machine
from pybench.model.record import Record
from pybench.model.results import NodeCheck


def throttling(records: Sequence[Record], machine: Machine) -> Iterator[NodeCheck]:
    """Clocks held down by heat or a power brake. A board at its power limit works as it should: listed.

    A GPU of which nothing was read does not pass.
    """
    held_by = {state.uuid: state.held_by for state in gpu_states(records)}
    known = {uuid: words for uuid, words in held_by.items() if words is not None}
    if not known:
        yield unknown("throttling", "no clock event reasons were read while measuring")
        return
    for uuid in held_by.keys() - known.keys():
        reason = "no clock event reasons of it were read while measuring"
        yield run_check("throttling", gpu_name(uuid, machine), "no_expectation", reason)
    slowed = {uuid: faults for uuid, words in known.items() if (faults := [w for w in words if w != POWER_LIMIT])}
    for uuid, faults in slowed.items():
        yield run_check("throttling", gpu_name(uuid, machine), "fail", f"{', '.join(faults)}, {_coverage(records)}")
    if not slowed:
        capped = [uuid for uuid, words in known.items() if POWER_LIMIT in words]
        limits = _power_limits(capped, len(known), machine)
        subject = "all GPUs" if len(known) == len(held_by) else "all other GPUs"
        reason = f"no thermal slowdown and no power brake, {_coverage(records)}; {limits}"
        yield run_check("throttling", subject, "pass", reason)


def _coverage(records: Sequence[Record]) -> str:
    """A point may be over before the sensor's next reading: how many were not."""
    measured = {record.point_id for record in records if record.ok}
    read = {
        record.point_id for record in records if any(gpu.clock_event_reasons is not None for gpu in record.conditions)
    }
    return f"read in {len(read)} of {len(measured)} points"


def _power_limits(capped: Sequence[str], num_known: int, machine: Machine) -> str:
    """Which GPUs met their power limit, and whose limit somebody has lowered."""
    if not capped:
        return "none met its power limit"
    names = "all GPUs" if len(capped) == num_known else ", ".join(gpu_name(u, machine) for u in capped)
    lowered = [text for gpu in machine.gpus if gpu.uuid in capped and (text := _lowered(gpu))]
    return "; ".join((f"met their power limit: {names}", *lowered))


def _lowered(gpu: GpuInfo) -> str | None:
    limit_w, default_w = gpu.power_limit_w, gpu.power_limit_default_w
    if limit_w is None or default_w is None or limit_w >= default_w:
        return None
    return f"a cause: GPU {gpu.index} is limited to {limit_w:.0f} W, below its default of {default_w:.0f} W"
