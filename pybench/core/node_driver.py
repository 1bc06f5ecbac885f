"""The driver's reports over all attempts: states of GPUs, PCIe links, memory errors, XIDs, throttling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from statistics import median

from pybench.core.measurements import grouped
from pybench.core.node_ranks import gpu_name, node_check
from pybench.model.machine import Machine
from pybench.model.record import GpuCounters, GpuState, PcieLink, Record
from pybench.model.results import NodeCheck
from pybench.model.text import plural
from pybench.model.verdict import Verdict


def pcie(records: Sequence[Record], machine: Machine) -> Iterator[NodeCheck]:
    """Links narrower or slower, even when busy, than GPU and slot can be. A GPU with an unread link does not pass."""
    best: dict[str, PcieLink] = {}
    for link in (link for record in records if record.health for link in record.health.links):
        if link.uuid not in best or link.speed > best[link.uuid].speed:
            best[link.uuid] = link
    known = {
        uuid: link
        for uuid, link in best.items()
        if None not in {link.generation, link.width, link.generation_max, link.width_max}
    }
    if not known:
        yield unknown("pcie", "the driver does not report how fast its links are")
        return
    uuids = dict.fromkeys((*_watched(records), *best))
    by_gpu: dict[str, tuple[Verdict, str]] = {}
    for uuid, link in known.items():
        if link.speed < (link.generation_max or 0, link.width_max or 0):
            possible = f"generation {link.generation_max} x{link.width_max}"
            by_gpu[uuid] = "fail", f"generation {link.generation} x{link.width} at best, could be {possible}"
    by_gpu |= {uuid: (_UNREAD, "its link was not read while measuring") for uuid in uuids if uuid not in known}
    all_well = f"as wide and fast as can be: {len(known)} of {plural(len(uuids), 'link')}"
    yield from _of_gpus("pcie", machine, by_gpu, all_well)


_UNREAD: Verdict = "no_expectation"


def _of_gpus(
    name: str, machine: Machine, by_gpu: Mapping[str, tuple[Verdict, str]], all_well: str | None
) -> Iterator[NodeCheck]:
    """A check of each GPU of ``by_gpu``, bad or not read; where none is bad, all others pass by ``all_well``."""
    for uuid, (verdict, reason) in by_gpu.items():
        yield node_check(name, gpu_name(uuid, machine), verdict, reason)
    if all_well is not None and all(verdict == _UNREAD for verdict, _ in by_gpu.values()):
        yield node_check(name, "all other GPUs" if by_gpu else "all GPUs", "pass", all_well)


def memory_errors(records: Sequence[Record], machine: Machine) -> Iterator[NodeCheck]:
    """ECC errors and remapped rows of attempts, and remaps that wait or failed. A GPU without counts does not pass."""
    pairs = [
        (before, after)
        for record in records
        if record.health
        for before in record.health.before
        for after in record.health.after
        if after.uuid == before.uuid
    ]
    counted = {now.uuid for before, now in pairs if None not in {before.ecc_uncorrected, now.ecc_uncorrected}}
    by_gpu = {
        uuid: judged
        for uuid in dict.fromkeys(after.uuid for _, after in pairs)
        if (judged := _memory_verdict([pair for pair in pairs if pair[1].uuid == uuid]))
    }
    uncounted = [uuid for uuid in _watched(records) if uuid not in counted | by_gpu.keys()]
    by_gpu |= {uuid: (_UNREAD, "its memory errors were not counted while measuring") for uuid in uncounted if counted}
    all_well = "no new ECC error, no new remapped row, none pending or failed"
    yield from _of_gpus("memory_errors", machine, by_gpu, all_well if counted else None)
    if not counted:
        yield unknown("memory_errors", "the driver counts no memory errors here")


def _watched(records: Sequence[Record]) -> Sequence[str]:
    """Every GPU whose counters were looked at, also without an answer."""
    return tuple(dict.fromkeys(gpu.uuid for record in records if record.health for gpu in record.health.before))


def _memory_verdict(pairs: Sequence[tuple[GpuCounters, GpuCounters]]) -> tuple[Verdict, str] | None:
    rows = _risen(pairs, "rows_remapped_corrected") + _risen(pairs, "rows_remapped_uncorrected")
    uncorrected, corrected = _risen(pairs, "ecc_uncorrected"), _risen(pairs, "ecc_corrected")
    grave = {
        f"uncorrected ECC errors: {uncorrected}": uncorrected > 0,
        f"rows remapped: {rows}": rows > 0,
        "a remapped row waits for a reset of the GPU": any(after.remap_pending for _, after in pairs),
        "a row could not be remapped: replace the GPU": any(after.remap_failed for _, after in pairs),
    }
    if any(grave.values()):
        return "fail", "; ".join(text for text, true in grave.items() if true)
    if corrected:
        # Memory that corrects does its work, but many corrected errors come before the first that is not.
        return "inconclusive", f"corrected ECC errors: {corrected}; watch whether more follow"
    return None


def _risen(pairs: Sequence[tuple[GpuCounters, GpuCounters]], name: str) -> int:
    """Rise of a count during attempts with both ends read; a fallen count was reset with the driver."""
    counts = [(getattr(before, name), getattr(after, name)) for before, after in pairs]
    return sum(max(0, now - then) for then, now in counts if then is not None and now is not None)


def xids(records: Sequence[Record], machine: Machine) -> Iterator[NodeCheck]:
    """Errors that the driver wrote to the kernel's log during attempts."""
    logs = [record.health.xids for record in records if record.health and record.health.xids is not None]
    errors = {xid.sequence: xid for log in logs for xid in log}
    for xid in errors.values():
        slot = _slot(xid.pci_bus_id)
        uuid = next((gpu.uuid for gpu in machine.gpus if gpu.pci_bus_id and _slot(gpu.pci_bus_id) == slot), None)
        subject = f"PCI {xid.pci_bus_id}" if uuid is None else gpu_name(uuid, machine)
        yield node_check("fabric" if xid.of_switch else "xid", subject, "fail", f"{xid} in the kernel's log")
    if not logs:
        yield unknown("xid", "the kernel's log can't be read; root can")
    elif not errors:
        yield node_check("xid", "all GPUs", "pass", "no XID in the kernel's log")


def fabric(_records: Sequence[Record], machine: Machine) -> Iterator[NodeCheck]:
    """The NVSwitch fabric of GPUs that have one: until it is up no CUDA program starts."""
    for gpu in machine.gpus:
        if gpu.fabric is not None:
            verdict: Verdict = "pass" if gpu.fabric in {None, "completed"} else "fail"
            yield node_check("fabric", gpu_name(gpu.uuid, machine), verdict, f"its NVSwitch fabric is {gpu.fabric}")


def nvlinks(_records: Sequence[Record], machine: Machine) -> Iterator[NodeCheck]:
    """Active NVLinks of each GPU, against the most of its model: every collective waits for the GPU with fewest."""
    most: dict[str, int] = {}
    for gpu in machine.gpus:
        most[gpu.name] = max(most.get(gpu.name, 0), gpu.num_nvlinks or 0)
    for gpu in machine.gpus:
        if gpu.num_nvlinks is not None and gpu.num_nvlinks < most[gpu.name]:
            reason = f"{gpu.num_nvlinks} of {most[gpu.name]} NVLinks active"
            yield node_check("nvlink", gpu_name(gpu.uuid, machine), "fail", reason)


def _slot(address: str) -> str:
    """Equal for NVML's ``00000000:19:00.0`` and the kernel's ``0000:19:00``."""
    return address.partition(".")[0].lower().lstrip("0")


def unknown(name: str, reason: str) -> NodeCheck:
    """Visible, and neither pass nor fail."""
    return node_check(name, "all GPUs", "no_expectation", reason)


def throttling(records: Sequence[Record], machine: Machine) -> Iterator[NodeCheck]:
    """Clocks held down by heat or a power brake. A board at its power limit works as it should: listed.

    A GPU of which nothing was read does not pass.
    """
    held_by = {state.uuid: state.held_by for state in gpu_states(records)}
    known = {uuid: words for uuid, words in held_by.items() if words is not None}
    if not known:
        yield unknown("throttling", "no clock event reasons were read while measuring")
        return
    reason = "no clock event reasons of it were read while measuring"
    by_gpu: dict[str, tuple[Verdict, str]] = dict.fromkeys(held_by.keys() - known.keys(), (_UNREAD, reason))
    # A point may be over before the sensor's next reading.
    measured = {record.point_id for record in records if record.ok}
    read = {record.point_id for record in records for gpu in record.conditions if gpu.clock_event_reasons is not None}
    coverage = f"read in {len(read)} of {len(measured)} points"
    for uuid, words in known.items():
        if faults := [word for word in words if word != POWER_LIMIT]:
            by_gpu[uuid] = "fail", f"{', '.join(faults)}, {coverage}"
    limits = _power_limits([uuid for uuid, words in known.items() if POWER_LIMIT in words], len(known), machine)
    yield from _of_gpus("throttling", machine, by_gpu, f"no thermal slowdown and no power brake, {coverage}; {limits}")


def _power_limits(capped: Sequence[str], num_known: int, machine: Machine) -> str:
    """Which GPUs met their power limit, and whose limit somebody has lowered."""
    if not capped:
        return "none met its power limit"
    names = "all GPUs" if len(capped) == num_known else ", ".join(gpu_name(u, machine) for u in capped)
    lowered = []
    for gpu in machine.gpus:
        limit_w, default_w = gpu.power_limit_w, gpu.power_limit_default_w
        if gpu.uuid in capped and limit_w is not None and default_w is not None and limit_w < default_w:
            limits = f"limited to {limit_w:.0f} W, below its default of {default_w:.0f} W"
            lowered.append(f"a cause: GPU {gpu.index} is {limits}")
    return "; ".join((f"met their power limit: {names}", *lowered))


def gpu_states(records: Sequence[Record]) -> tuple[GpuState, ...]:
    """One for each GPU, over attempts: absolute values, which need no other GPU to be compared with."""
    states = []
    for uuid, conditions in grouped((gpu.uuid, gpu) for record in records for gpu in record.conditions).items():
        clocks_hz = [gpu.sm_clock_hz for gpu in conditions if gpu.sm_clock_hz is not None]
        reasons = [gpu.clock_event_reasons for gpu in conditions if gpu.clock_event_reasons is not None]
        state = GpuState(
            uuid=uuid,
            index=conditions[0].index,
            sm_clock_hz=median(clocks_hz) if clocks_hz else None,
            temperature_c=max((gpu.temperature_c for gpu in conditions if gpu.temperature_c is not None), default=None),
            held_by=event_words(reduce(or_, reasons)) if reasons else None,
        )
        states.append(state)
    return tuple(states)


POWER_LIMIT = "power limit"
_WORDS = {
    0x04: POWER_LIMIT,
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
THROTTLE_REASONS = sum(bit for bit, word in _WORDS.items() if word != POWER_LIMIT)
"""Bits of a thermal or power-brake slowdown; a board at its power limit is no fault."""


def event_words(reasons: int) -> tuple[str, ...]:
    """Names of those bits of NVML's mask that slow a GPU at work; idleness and clocks set by hand are none."""
    return tuple(word for bit, word in _WORDS.items() if reasons & bit)
