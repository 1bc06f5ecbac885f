"""Further columns for each kind of point: the figures that its suite is about."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from pybench.core.numbers import percent, plain, quantity
from pybench.model.results import Estimate, PointResult
from pybench.model.workloads.settings import AUTO
from pybench.model.workloads.train_strategies import STRATEGIES
from pybench.report.run.headline import requests_differ

# A results.json may have anything for a setting, what has no hash too.
_STAGED = tuple(name for name, strategy in STRATEGIES.items() if strategy.has_stages)


@dataclass(frozen=True)
class Secondary:
    """A column's head, its metric, the points it is there for, and how its figure is written.

    Where one of a table's points has the column, the others show their figures beside it; with ``of_all`` all of them
    must be of its kind. ``gives_way`` where limits and spreads need its room: no suite of these points is made for it
    alone.
    """

    head: str
    metric: str
    describes: Callable[[PointResult], bool]
    text: Callable[[Estimate], str] = quantity
    of_all: bool = False
    gives_way: bool = False

    def stands(self, points: Sequence[PointResult]) -> bool:
        """Whether a table of these points has the column."""
        if self.of_all and not all(self.describes(point) for point in points):
            return False
        return any(self.cell(point) and self.describes(point) for point in points)

    def cell(self, point: PointResult) -> str | None:
        """The point's figure; ``None`` where it has none."""
        found = point.metrics.get(self.metric)
        return None if found is None else self.text(found)


def _takes_turns(point: PointResult) -> bool:
    return "turn_s" in point.metrics


def _evaluates(point: PointResult) -> bool:
    return "evaluation_overhead_fraction" in point.metrics


def _saves(point: PointResult) -> bool:
    return "save_bytes_per_s" in point.metrics


def _has_phases(point: PointResult) -> bool:
    return "decode_energy_j_per_output_token" in point.metrics


def _millijoules(found: Estimate) -> str:
    return plain(1000 * found.value)


def _trains(point: PointResult) -> bool:
    return "tokens_per_s" in point.metrics


def _has_limits(point: PointResult) -> bool:
    return "goodput_requests_per_s" in point.metrics


def _has_stages(point: PointResult) -> bool:
    return point.settings.get("strategy") in _STAGED


def _finds_batch_size(point: PointResult) -> bool:
    return point.settings.get("batch_size_per_gpu") == AUTO


_ALL = (
    Secondary("TTFT p99", "ttft_p99_s", requests_differ),
    Secondary("TPOT p99", "tpot_p99_s", requests_differ),
    Secondary("goodput", "goodput_requests_per_s", _has_limits),
    Secondary("switch", "switch_s", _takes_turns),
    Secondary("of a turn", "switch_fraction", _takes_turns, lambda found: percent(found.value)),
    Secondary("evaluation", "evaluation_overhead_fraction", _evaluates, lambda found: percent(found.value)),
    Secondary("load", "load_bytes_per_s", _saves),
    Secondary("size", "checkpoint_bytes", _saves),
    Secondary("batch per GPU", "batch_size_per_gpu", _finds_batch_size, lambda found: plain(found.value)),
    Secondary("waits", "stage_idle_fraction", _has_stages, lambda found: percent(found.value), of_all=True),
    Secondary("prefill mJ", "prefill_energy_j_per_prompt_token", _has_phases, _millijoules, gives_way=True),
    Secondary("decode mJ", "decode_energy_j_per_output_token", _has_phases, _millijoules, gives_way=True),
    Secondary("memory", "peak_memory_bytes", _trains, gives_way=True),
)


def secondaries(points: Sequence[PointResult], shown: Container[str], *, roomy: bool) -> tuple[Secondary, ...]:
    """Those that any of ``points`` has, without metrics that are ``shown`` already; where it is ``roomy``, all."""
    wanted = (one for one in _ALL if one.metric not in shown and (roomy or not one.gives_way))
    return tuple(one for one in wanted if one.stands(points))
