"""Each link between two GPUs against the others of its kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pybench.core.node.ranks import Judged, PointRecords, judge_alike, shares_of_others, shown
from pybench.core.numbers import quantity, short_percent
from pybench.core.statistics.interval import Samples, location
from pybench.model.results import Estimate, NodeCheck
from pybench.model.text import listed

# NVLinks of one kind are the same hardware: healthy ones were 3 % apart on an H200 host. One NVLink of 18 that fell out
# costs 6 %, of 12 it costs 8 %: what stays within a tenth is left to the expected table.
SLOWER_FRACTION = 0.10
# Sockets, switches and NUMA nodes lie on every other way.
_SLOWER_FRACTION_OVER_PCIE = 0.20
_SLOWER_FRACTION_ON_CPU = 0.50
# A GPU that is slow as a whole spoils all its links, of three GPUs' most; two that are well share a link each way.
_NUM_BEST = 2


@dataclass(frozen=True)
class _Link:
    """One direction between two ranks; ``kind`` as ``nvidia-smi topo -m`` names it, ``ends`` the devices' names."""

    sender: int
    receiver: int
    kind: str
    ends: tuple[str, str]
    bytes_per_s: Samples


def slow_links(point: PointRecords) -> Iterator[NodeCheck]:
    """Every link that is slower than the best others of its kind by more than is usual, or may be; else the slowest.

    Links of a kind join devices of the same names: others may be narrower, or lack direct copies.
    A GPU that all links of a kind touch is compared with itself alone: then the reason states that only an expected
    table shows whether it is slow as a whole.
    """
    links = _matrix(point)
    for sort in dict.fromkeys((link.kind, link.ends) for link in links):
        alike = [link for link in links if (link.kind, link.ends) == sort]
        if len(alike) < 2:  # noqa: PLR2004 - nothing to be compared with
            continue
        over_fabric = SLOWER_FRACTION if alike[0].kind.startswith("NV") else _SLOWER_FRACTION_OVER_PCIE
        tolerance = over_fabric if point.on_gpu else _SLOWER_FRACTION_ON_CPU
        best = sorted(alike, key=lambda link: location(link.bytes_per_s), reverse=True)[: _NUM_BEST + 1]
        others = [[other.bytes_per_s for other in best if other is not link][:_NUM_BEST] for link in alike]
        shares = {index: shares_of_others(link.bytes_per_s, others[index]) for index, link in enumerate(alike)}
        judged = judge_alike(point.point, shares, tolerance)
        for index in shown(judged):
            yield _check(point, alike[index], judged[index], tolerance, _blind_spot(point, alike))


def _blind_spot(point: PointRecords, alike: Sequence[_Link]) -> str:
    common = set.intersection(*({link.sender, link.receiver} for link in alike))
    names = listed(point.name(rank) for rank in sorted(common))
    return f"; all of them touch {names}: slow as a whole shows against a table alone" if common else ""


def _matrix(point: PointRecords) -> list[_Link]:
    """Links with the topology's word for their kind; ranks have the numbers of the machine's GPUs."""
    links, topology = [], point.machine.topology
    for receiver in range(point.point.num_gpus):
        for sender, bytes_per_s in point.values(f"link_to_{receiver}_bytes_per_s").items():
            known = point.on_gpu and max(sender, receiver) < len(topology)
            ends = point.device_name(sender), point.device_name(receiver)
            links.append(_Link(sender, receiver, topology[sender][receiver] if known else "link", ends, bytes_per_s))
    return links


def _check(point: PointRecords, link: _Link, found: Judged, tolerance: float, blind_spot: str) -> NodeCheck:
    speed = quantity(Estimate(value=location(link.bytes_per_s), low=None, high=None, unit="bytes/s"))
    reason = (
        f"{link.kind}, {speed}: {found} against the best others of its kind, allowed -{short_percent(tolerance)}"
        f"{found.what_next}{blind_spot}"
    )
    subject = f"{point.name(link.sender)} → {point.name(link.receiver)}"
    return found.check("link", subject, point.point, tolerance, reason)
