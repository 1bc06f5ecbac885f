"""The node check of the page: a card for each GPU, and each link's speed as a matrix."""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import median

from pybench.core.numbers import plain
from pybench.model.results import Results
from pybench.report.run.use import gpu_names
from pybench.report.run.view import RunView

_LINK = re.compile(r"link_to_(\d+)_bytes_per_s")
_BYTES_PER_GB = 1e9
_HZ_PER_MHZ = 1e6
_BAD = ("fail", "error")


@dataclass(frozen=True)
class GpuCard:
    """One GPU: its name and UUID, what it showed under load, and the checks that it failed."""

    name: str
    uuid: str
    facts: tuple[str, ...]
    faults: tuple[str, ...]


@dataclass(frozen=True)
class LinkCell:
    """Speed from one GPU to another in GB/s, its place between the slowest (0) and the fastest (9), and any fault."""

    text: str
    level: int | None
    fault: str | None = None


@dataclass(frozen=True)
class LinkMatrix:
    """Rows are senders, columns receivers."""

    names: tuple[str, ...]
    rows: tuple[tuple[LinkCell, ...], ...]


def gpu_cards(results: Results) -> tuple[GpuCard, ...]:
    """Every GPU that a point used, with its highest temperature and lowest clock under load."""
    if not results.node:
        return ()
    return tuple(_card(results, uuid, name) for uuid, name in gpu_names(results).items())


def _card(results: Results, uuid: str, name: str) -> GpuCard:
    states = [state for point in results.points for state in point.gpu_states if state.uuid == uuid]
    warm = [state.temperature_c for state in states if state.temperature_c is not None]
    clocks = [state.sm_clock_hz for state in states if state.sm_clock_hz is not None]
    held = dict.fromkeys(word for state in states for word in state.held_by or ())
    facts = (
        *((f"up to {max(warm):.0f} °C",) if warm else ()),
        *((f"{min(clocks) / _HZ_PER_MHZ:,.0f} to {max(clocks) / _HZ_PER_MHZ:,.0f} MHz",) if clocks else ()),
        *((f"held by {', '.join(held)}",) if held else ()),
    )
    own = re.compile(rf"(^|\W)({re.escape(name)}|{re.escape(uuid)})(\W|$)")
    bad = [check for check in results.node if check.verdict in _BAD and own.search(check.subject)]
    return GpuCard(name, uuid, facts, tuple(f"{check.name}: {check.reason}" for check in bad))


def link_matrix(view: RunView) -> LinkMatrix | None:
    """The median speed of every link over the attempts; ``None`` where no point measured links."""
    found = _speeds(view)
    if not found:
        return None
    size = 1 + max(max(pair) for pair in found)
    names = tuple(f"GPU {number}" for number in range(size))
    slowest, fastest = min(found.values()), max(found.values())
    faults = _faults(view.results)

    def cell(sender: int, receiver: int) -> LinkCell:
        speed = found.get((sender, receiver))
        if speed is None:
            return LinkCell("", None)
        level = 9 if fastest == slowest else round(9 * (speed - slowest) / (fastest - slowest))
        return LinkCell(plain(speed / _BYTES_PER_GB), level, faults.get((sender, receiver)))

    return LinkMatrix(names, tuple(tuple(cell(a, b) for b in range(size)) for a in range(size)))


def _speeds(view: RunView) -> dict[tuple[int, int], float]:
    measured: dict[tuple[int, int], list[float]] = {}
    for record in view.good_records:
        for sender, rank in enumerate(record.ranks):
            values = [(m.name, m.value) for m in rank.metrics] + [v for s in rank.steps for v in s.values.items()]
            for name, value in values:
                if matched := _LINK.fullmatch(name):
                    measured.setdefault((sender, int(matched[1])), []).append(value)
    return {pair: median(values) for pair, values in measured.items()}


def _faults(results: Results) -> dict[tuple[int, int], str]:
    """Reasons of links that failed, by the numbers of sender and receiver."""
    found = {}
    for check in results.node:
        numbers = re.findall(r"(?:GPU|rank) (\d+)", check.subject)
        if check.name == "link" and check.verdict in _BAD and len(numbers) == 2:  # noqa: PLR2004 - a link has two ends
            found[int(numbers[0]), int(numbers[1])] = check.reason
    return found
