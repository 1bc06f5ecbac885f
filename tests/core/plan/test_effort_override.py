"""Effort that a command line sets in place of a suite's."""

from __future__ import annotations

from pybench.core.plan import with_effort
from pybench.model.suite import Benchmark, Effort, Suite
from tests.api import suite_of


def _suite(effort: Effort) -> Suite:
    benchmark = Benchmark(name="b", workload="matmul", settings={"backend": "torch"}, axes={}, effort=effort)
    return suite_of(benchmark)


def test_attempts_are_exactly_as_many() -> None:
    """No more are added for an inconclusive verdict, and no fewer; the rest stays."""
    made = with_effort(_suite(Effort(attempts=3, max_attempts=6, steps=7)), attempts=1)
    assert made.benchmarks[0].effort == Effort(attempts=1, max_attempts=1, steps=7)


def test_steps_alone() -> None:
    """Attempts stay as the suite has them."""
    made = with_effort(_suite(Effort(attempts=3, max_attempts=6)), steps=2)
    assert made.benchmarks[0].effort == Effort(attempts=3, max_attempts=6, steps=2)


def test_nothing_given_changes_nothing() -> None:
    """The suite's own."""
    suite = _suite(Effort(steps=2))
    assert with_effort(suite) == suite
