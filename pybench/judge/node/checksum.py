"""Results that must repeat bit for bit: silent data corruption has no other sign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pybench.judge.node.ranks import PointRecords
from pybench.model.results import NodeCheck, Verdict


def checksums(point: PointRecords) -> Iterator[NodeCheck]:
    """Every GPU whose results differ from its own first ones, or from what most GPUs of its name found.

    Ranks multiply the same operands with the same library, so their results may be compared.
    """
    told, differing = point.values("checksum"), point.values("mismatched_elements")
    if not told:
        return
    usual = _usual(point, told)
    num_steps = sum(len(steps) for steps in next(iter(told.values())))
    healthy = True
    for rank, attempts in told.items():
        wrong = sum(value != usual[_device(point, rank)] for steps in attempts for value in steps)
        elements = sum(value for steps in differing.get(rank, []) for value in steps)
        if wrong or elements:
            healthy = False
            reason = (
                f"{wrong} of {num_steps} checksums differ from the usual one, "
                f"{elements:,.0f} elements from the same product's first result"
            )
            yield _check(point, point.name(rank), wrong, "fail", reason)
    if healthy:
        yield _check(point, "all ranks", 0, "pass", f"results repeat bit for bit, in {num_steps} steps of each")


def _device(point: PointRecords, rank: int) -> str:
    return point.records[0].ranks[rank].header.device_name


def _usual(point: PointRecords, told: dict[int, list[list[float]]]) -> dict[str, float]:
    """What most steps of devices of one name found; another kind of device may round otherwise."""
    found: dict[str, Counter[float]] = {}
    for rank, attempts in told.items():
        found.setdefault(_device(point, rank), Counter()).update(value for steps in attempts for value in steps)
    return {device: counted.most_common(1)[0][0] for device, counted in found.items()}


def _check(point: PointRecords, subject: str, wrong: int, verdict: Verdict, reason: str) -> NodeCheck:
    return NodeCheck(
        name="checksum",
        subject=subject,
        point_id=point.point.id,
        value=float(wrong),
        limit=0.0,
        unit="steps",
        verdict=verdict,
        reason=reason,
    )
