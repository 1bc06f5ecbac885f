"""Faults of a node: failed checks, grouped by their GPU or link, and the remedy of each kind."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pybench.core.measurements import grouped
from pybench.core.numbers import short_percent
from pybench.model.machine import GpuInfo
from pybench.model.results import JudgedRow, NodeCheck, PointResult
from pybench.model.text import listed, plural

Part = Literal["GPU", "link", "host", "software"]
"""Subject of a finding."""
PARTS: tuple[Part, ...] = ("GPU", "link", "host", "software")

REMEDIES = {
    "wrong_results": "take it out of service, then repeat the check: dcgmi diag -r 3 -i {gpus}",
    "memory_errors": "reset the GPU without jobs on it, then repeat the check: nvidia-smi -i {gpus} --gpu-reset",
    "xid": "look the number up in NVIDIA's XID table and read the log: dmesg | grep -i xid",
    "fabric": "read its log, give it the driver's version, start it: systemctl restart nvidia-fabricmanager",
    "heat": "check fans and air, then see what holds the clock: nvidia-smi -i {gpus} -q -d PERFORMANCE,TEMPERATURE",
    "slow_gpu": "look for processes, limits and clock locks: nvidia-smi -i {gpus} -q -d PIDS,POWER,CLOCK,PERFORMANCE",
    "slow_link": "look for links that are down and for their errors: nvidia-smi nvlink -s -e; nvidia-smi topo -m",
    "few_nvlinks": "look for the inactive ones and their errors: nvidia-smi nvlink -i {gpus} -s; nvidia-smi nvlink -e",
    "narrow_pcie": "reseat the card and its riser, then look again: nvidia-smi -i {gpus} -q -d PCIE",
    "slow_host_copies": "compare the slots and NUMA nodes: nvidia-smi topo -m; lspci -vv",
    "more_power": "compare limits and temperatures: nvidia-smi -i {gpus} -q -d POWER,TEMPERATURE",
}
"""What to do about each kind of fault, the gravest kind first; the documents have likely causes too.

``{gpus}`` stands for the indices of the GPUs as ``nvidia-smi -i`` takes them.
"""

_OF_CHECK = {
    "checksum": "wrong_results",
    "memory_errors": "memory_errors",
    "xid": "xid",
    "fabric": "fabric",
    "nvls": "fabric",
    "throttling": "heat",
    "temperature": "heat",
    "slowest": "slow_gpu",
    "clock": "slow_gpu",
    "link": "slow_link",
    "nvlink": "few_nvlinks",
    "pcie": "narrow_pcie",
    "power_at_equal_work": "more_power",
}
_OF_HOSTS = {"heat", "narrow_pcie"}
"""Kinds that one cause in the host gives to every GPU."""
_HOST_COPIES = "host_copy_bytes_per_s"
_END = re.compile(r"(?:GPU \d+ \([^)]*\)|rank \d+|PCI [\da-fA-F:.]+|GPU-[\w-]+)")
_GPU = re.compile(r"GPU (\d+) \(")
_LEAST_LINKS = 3
"""From so many failed links on, with more than one other end, the GPU that they share is named instead of each."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A GPU, a link or all GPUs together, with everything that its failed ``checks`` found.

    ``sentence`` names it and what is wrong; ``kind`` is the gravest of :data:`REMEDIES`; ``gpus`` are indices.
    """

    part: Part
    sentence: str
    kind: str
    checks: tuple[NodeCheck, ...]
    gpus: tuple[int, ...] = ()


def faults(checks: Iterable[NodeCheck], points: Sequence[PointResult], gpus: Sequence[GpuInfo]) -> tuple[Fault, ...]:
    """Every fault that failed checks show, the gravest first."""
    failed = [check for check in checks if names_part(check)]
    names = {f"GPU {gpu.index} ({gpu.uuid})": _name(gpu) for gpu in gpus}
    benchmarks = {point.id: point.benchmark for point in points}
    by_subject = grouped((check.subject, check) for check in failed if check.name != "link")
    links = [check for check in failed if check.name == "link"]
    found = [
        *_alike(by_subject, len(gpus), benchmarks),
        *(_fault(subject, group, names, benchmarks) for subject, group in by_subject.items() if group),
        *_of_links(links, names),
    ]
    order = list(REMEDIES)
    return tuple(sorted(found, key=lambda fault: (PARTS.index(fault.part), order.index(fault.kind))))


def names_part(check: NodeCheck) -> bool:
    """Whether a failed check points to a part; checks of other versions do not."""
    num_ends = len(_ends(check))
    return check.verdict == "fail" and check.name in _OF_CHECK and (check.name != "link" or num_ends == 2)  # noqa: PLR2004


def is_consequence(row: JudgedRow, broken: Sequence[Fault]) -> bool:
    """Whether a limit is missed at a point in which a GPU or link is slow: the fault is named instead."""
    if isinstance(row, NodeCheck):
        return names_part(row)
    slow = {check.point_id for fault in broken for check in fault.checks}
    return row.verdict == "fail" and not slow.isdisjoint(row.point_ids)


def remedies(broken: Sequence[Fault]) -> dict[str, str]:
    """What to do about each kind of fault, with the indices of all GPUs that have it."""
    indices: dict[str, set[int]] = {}
    for fault in broken:
        indices.setdefault(fault.kind, set()).update(fault.gpus)
    return {
        kind: REMEDIES[kind].replace(" -i {gpus}", f" -i {','.join(map(str, sorted(gpus)))}" if gpus else "")
        for kind, gpus in indices.items()
    }


def short_id(text: str) -> str:
    """A text in which each GPU's UUID has its first eight digits alone."""
    return re.sub(r"\bGPU-([0-9a-f]{8})-[\w-]+", r"GPU-\1", text)


def _name(gpu: GpuInfo) -> str:
    """``GPU 2 (PCI 0000:3b:00, serial 1654123012345)``; the start of its UUID where no PCI address is known."""
    if gpu.pci_bus_id is None:
        return f"GPU {gpu.index} ({short_id(gpu.uuid)})"
    slot = re.sub(r"^0{4}(?=[\da-f]{4}:)", "", gpu.pci_bus_id.partition(".")[0].lower())
    return f"GPU {gpu.index} (PCI {slot}{f', serial {gpu.serial}' if gpu.serial else ''})"


def _alike(by_subject: dict[str, list[NodeCheck]], num_gpus: int, benchmarks: Mapping[str, str]) -> Iterable[Fault]:
    """A kind that every GPU has is one fault of the host; its checks are taken out of ``by_subject``."""
    if num_gpus < 2:  # noqa: PLR2004 - one GPU is itself
        return
    having = Counter(kind for group in by_subject.values() for kind in {_kind(check) for check in group})
    for kind, number in having.items():
        if number == num_gpus and kind in _OF_HOSTS:
            checks = tuple(check for group in by_subject.values() for check in group if _kind(check) == kind)
            for subject, group in by_subject.items():
                by_subject[subject] = [check for check in group if _kind(check) != kind]
            words = _words(kind, [check for check in checks if check.subject == checks[0].subject], benchmarks)
            sentence = f"all {num_gpus} GPUs alike: each {words}"
            yield Fault(part="host", sentence=sentence, kind=kind, checks=checks, gpus=_indices(checks))


def _fault(subject: str, checks: Sequence[NodeCheck], names: Mapping[str, str], benchmarks: Mapping[str, str]) -> Fault:
    by_kind: dict[str, list[NodeCheck]] = {kind: [] for kind in REMEDIES}
    for check in checks:
        by_kind[_kind(check)].append(check)
    kinds = [kind for kind, of_kind in by_kind.items() if of_kind]
    # Slowness is named first; joules for the same work follow from any other fault.
    told = sorted((kind for kind in kinds if kind != "more_power" or len(kinds) == 1), key="slow_gpu".__ne__)
    phrases = [_words(kind, by_kind[kind], benchmarks) for kind in told]
    sentence = f"{_renamed(subject, names)} {'; it '.join(phrases)}"
    is_host = not subject.startswith(("GPU", "PCI")) or set(kinds) <= {"slow_host_copies", "narrow_pcie"}
    return Fault(
        part="host" if is_host else "GPU", sentence=sentence, kind=kinds[0], checks=tuple(checks), gpus=_indices(checks)
    )


def _of_links(links: Sequence[NodeCheck], names: Mapping[str, str]) -> Iterable[Fault]:
    """The GPU that most failed links share, as long as several do; else each pair of ends once."""
    left = list(links)
    while left:
        ends = Counter(end for check in left for end in set(_ends(check)))
        shared, number = max(ends.items(), key=lambda item: item[1])
        checks = [check for check in left if shared in _ends(check)]
        others = tuple(dict.fromkeys(end for check in checks for end in _ends(check) if end != shared))
        if number >= _LEAST_LINKS and len(others) > 1:
            where = f"{plural(len(checks), 'link')} of {_renamed(shared, names)} are up to"
            sentence, subjects = f"{where} {_worst(checks)} slower than others of their kind", [shared]
        else:
            pair = set(_ends(left[0]))
            checks = [check for check in left if set(_ends(check)) == pair]
            where = listed(_renamed(end, names) for end in sorted(pair))
            sentence = f"the link between {where} is {_worst(checks)} slower than others of its kind"
            subjects = [check.subject for check in checks]
        gpus = tuple(sorted({int(index) for subject in subjects for index in _GPU.findall(subject)}))
        yield Fault(part="link", sentence=sentence, kind="slow_link", checks=tuple(checks), gpus=gpus)
        left = [check for check in left if check not in checks]


def _kind(check: NodeCheck) -> str:
    is_copy = check.name == "slowest" and check.reason.startswith(_HOST_COPIES)
    return "slow_host_copies" if is_copy else _OF_CHECK[check.name]


def _words(kind: str, checks: Sequence[NodeCheck], benchmarks: Mapping[str, str]) -> str:
    """Predicate of a sentence about a GPU."""
    first, ends = checks[0].reason, _ends(checks[0])
    if kind == "slow_gpu":
        slow: dict[str, float] = {}
        for check in checks:
            if check.name == "slowest" and check.value is not None:
                name = benchmarks.get(check.point_id or "", "a point")
                slow[name] = min(check.value, slow.get(name, 0.0))
        if not slow:
            return f"runs its SM clock {_worst(checks)} below its neighbours'"
        amounts = [f"{short_percent(-value)} in {name}" for name, value in slow.items()]
        first_amount, *rest = amounts
        return f"is {listed((first_amount.replace(' in ', ' slower than its neighbours in '), *rest))}"
    if kind == "heat":
        held = [check.reason.partition(", read in")[0] for check in checks if check.name == "throttling"]
        warmer = [check.value for check in checks if check.name == "temperature" and check.value is not None]
        words = (
            *((f"had its clock held down by {'; '.join(dict.fromkeys(held))}",) if held else ()),
            *((f"is {max(warmer):.0f} °C warmer than its neighbours",) if warmer else ()),
        )
        return " and ".join(words)
    return {
        "wrong_results": lambda: f"disagree: {first}" if len(ends) > 1 else f"computes wrong results: {first}",
        "memory_errors": lambda: f"has memory faults: {first}",
        "xid": lambda: f"reported {listed(dict.fromkeys(check.reason.split(' in ')[0] for check in checks))}",
        "fabric": lambda: f"can't use its NVSwitches: {listed(dict.fromkeys(check.reason for check in checks))}",
        "few_nvlinks": lambda: f"has {first}",
        "narrow_pcie": lambda: f"has a PCIe link of {first}",
        "slow_host_copies": lambda: f"copies {_worst(checks)} slower than its neighbours to or from the host",
        "more_power": lambda: f"needs {short_percent(max(c.value or 0 for c in checks))} more joules for the same work",
    }[kind]()


def _worst(checks: Sequence[NodeCheck]) -> str:
    return short_percent(-min(check.value or 0.0 for check in checks))


def _ends(check: NodeCheck) -> tuple[str, ...]:
    return tuple(_END.findall(check.subject))


def _renamed(subject: str, names: Mapping[str, str]) -> str:
    return _END.sub(lambda end: names.get(end[0], short_id(end[0])), subject)


def _indices(checks: Sequence[NodeCheck]) -> tuple[int, ...]:
    """Of every GPU that the checks' subjects name."""
    return tuple(sorted({int(index) for check in checks for index in _GPU.findall(check.subject)}))
