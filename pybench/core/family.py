"""Fails of a whole run: of many rows that are each at their limit, one would fail by chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from pybench.core.statistics.false_discovery import sure
from pybench.model.results import JudgedRow
from pybench.model.verdict import Decision

_Row = TypeVar("_Row", bound=JudgedRow)


def fails_that_stand(decisions: Sequence[Decision]) -> list[bool]:
    """Which rows fail when all are judged together, each at its own level."""
    stand = sure({place: decision.p_fail / decision.fail_level for place, decision in enumerate(decisions)})
    return [place in stand for place in range(len(decisions))]


def corrected(rows: Sequence[_Row], all_rows: Sequence[JudgedRow]) -> tuple[_Row, ...]:
    """``rows`` with fails that do not stand among ``all_rows`` made inconclusive."""
    decisions = [row.decision for row in all_rows if row.decision is not None]
    stands = {id(decision): stand for decision, stand in zip(decisions, fails_that_stand(decisions), strict=True)}
    return tuple(_corrected(row, stands, len(decisions)) for row in rows)


def _corrected(row: _Row, stands: dict[int, bool], num_rows: int) -> _Row:
    decision = row.decision
    if decision is None or row.verdict != "fail" or stands[id(decision)]:
        return row
    reason = f"{row.reason}; a fail by itself, but not yet sure among {num_rows} judged rows"
    open_again = replace(decision, attempts_to_decide=decision.num_attempts + 1)
    return replace(row, verdict="inconclusive", reason=reason, decision=open_again)
