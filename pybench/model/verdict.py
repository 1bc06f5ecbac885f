"""How firmly a row of a run is judged, by which limits, and how many rows were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["pass", "fail", "inconclusive", "missing", "error", "no_expectation"]
"""Interval inside the limits; outside; across them; no measurement; the worker broke; nothing to judge against."""

PREDICTION = "prediction"
"""Instead of a table's name, of rows that are judged by the node's own rates."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The speedup that a count should give, and where that figure comes from: a row of a table, or a prediction.

    ``predicted``, by the rates of ``rates_run``, and ``band_fraction``, how far below it healthy runs lie, are ``None``
    where a row of ``table`` judges. ``hosts`` are the healthy hosts of the row, ``None`` where it names none.
    """

    minimum: float | None
    maximum: float | None
    source: str
    table: str
    predicted: float | None = None
    band_fraction: float | None = None
    rates_run: str | None = None
    hosts: int | None = None


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A speedup of throughput that a node's own rates predict, and the band below it that healthy runs keep.

    ``communication_fraction`` is the predicted share of a step, of generation a decode round, that communication takes;
    ``None`` in runs of before. ``source`` names the node's run ``rates_run``, and the runs that the band comes from.
    """

    point_id: str
    baseline_id: str
    speedup: float
    band_fraction: float
    source: str
    communication_fraction: float | None = None
    rates_run: str | None = None

    @property
    def expected(self) -> Expected:
        """The limit that it sets where no row of a table fits."""
        return Expected(
            minimum=self.speedup * (1 - self.band_fraction),
            maximum=None,
            source=self.source,
            table=PREDICTION,
            predicted=self.speedup,
            band_fraction=self.band_fraction,
            rates_run=self.rates_run,
        )


@dataclass(frozen=True, kw_only=True)
class Decision:
    """How firmly a row stands, by the attempts that were made.

    ``num_attempts`` is the least number of attempts of any point in the row. ``p_fail`` is the probability of figures
    this bad, or worse, from a machine exactly at its limit; ``p_pass`` that of figures this good. A side is decided
    when its probability is at most its level, one look's share of the error of all looks together, 2.5 % a side. Over
    all rows of a run fails are corrected by Holm's method. ``num_points`` is of how many points the spread is, 0 where
    it is the row's own points' alone. ``attempts_to_decide`` is about how many attempts a point would decide an
    inconclusive row, ``None`` where no such number is known. ``is_final``: it is no spread between attempts that leaves
    the row undecided, so more of them change nothing. ``is_unconfirmed``: it is near a fail or a
    pass, and so few attempts don't show whether they are independent.
    """

    num_attempts: int
    p_pass: float
    p_fail: float
    pass_level: float
    fail_level: float
    num_points: int = 0
    attempts_to_decide: int | None = None
    is_final: bool = False
    is_unconfirmed: bool = False

    @property
    def is_of_one_attempt(self) -> bool:
        """Whether no spread between attempts is known, neither the row's own nor other points'."""
        return self.num_attempts == 1 and self.num_points == 0


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Numbers of judged and expected rows: of all kinds but claims, with guards, which no suite lists.

    ``judged`` rows passed, failed or are inconclusive; ``missing`` were not measured, or their worker broke;
    ``without_figure`` have no row of a table for this machine; ``left_out`` need what this machine or user leaves out.
    """

    expected: int = 0
    judged: int = 0
    passed: int = 0
    failed: int = 0
    inconclusive: int = 0
    missing: int = 0
    without_figure: int = 0
    left_out: int = 0
