"""Each link between two GPUs against the others of its kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pybench.compute.stats import Samples, location
from pybench.judge.node.ranks import Judged, PointRecords, against_others
from pybench.model.results import NodeCheck

# Links of one kind are the same hardware. One NVLink of 18 that fell out costs 6 %, of 12 it costs 8 %: what stays
# within a tenth is left to the expected table.
_SLOWER_FRACTION = 0.10
_SLOWER_FRACTION_ON_CPU = 0.50
_BYTES_PER_GB = 1e9


@dataclass(frozen=True)
class _Link:
    """One direction between two ranks; ``kind`` as ``nvidia-smi topo -m`` names it."""

    sender: int
    receiver: int
    kind: str
    bytes_per_s: Samples


def slow_links(point: PointRecords) -> Iterator[NodeCheck]:
    """Every link that is slower than the median of its kind by more than a tenth; else the slowest, which passes."""
    links = _matrix(point)
    tolerance = _SLOWER_FRACTION if point.on_gpu else _SLOWER_FRACTION_ON_CPU
    for kind in dict.fromkeys(link.kind for link in links):
        alike = [link for link in links if link.kind == kind]
        if len(alike) < 2:  # noqa: PLR2004 - nothing to be compared with
            continue
        judged = [
            (link, against_others(link.bytes_per_s, [o.bytes_per_s for o in alike if o is not link], tolerance))
            for link in alike
        ]
        failing = [pair for pair in judged if pair[1].verdict == "fail"]
        for link, found in failing or [min(judged, key=lambda pair: pair[1].fraction)]:
            yield _check(point, link, found, tolerance)


def _matrix(point: PointRecords) -> list[_Link]:
    links = []
    for receiver in range(point.point.num_gpus):
        told = point.values(f"link_to_{receiver}_bytes_per_s")
        links += [_Link(sender, receiver, _kind(point, sender, receiver), told[sender]) for sender in told]
    return links


def _kind(point: PointRecords, sender: int, receiver: int) -> str:
    """The topology's word for the way; ranks are numbered as the machine's GPUs are."""
    topology = point.machine.topology
    known = point.on_gpu and max(sender, receiver) < len(topology)
    return topology[sender][receiver] if known else "link"


def _check(point: PointRecords, link: _Link, found: Judged, tolerance: float) -> NodeCheck:
    speed = location(link.bytes_per_s) / _BYTES_PER_GB
    return NodeCheck(
        name="link",
        subject=f"{point.name(link.sender)} → {point.name(link.receiver)}",
        point_id=point.point.id,
        value=found.fraction,
        limit=-tolerance,
        unit="fraction",
        verdict=found.verdict,
        reason=f"{link.kind}, {speed:.4g} GB/s: {found} against the others of its kind, allowed {-tolerance:+.0%}",
    )
