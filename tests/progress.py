"""A progress that shows nothing."""

from __future__ import annotations

from collections.abc import Sequence

from pybench.model.results import Estimate
from pybench.model.suite import Point


class NoProgress:
    """A ``Progress`` that shows nothing."""

    def run_started(
        self, run_id: str, folder: str, points: Sequence[Point], num_attempts: int, expected_s: float | None = None
    ) -> None:
        """Show nothing."""

    def attempt_started(self, point_id: str, attempt: int, position: int, total: int) -> None:
        """Show nothing."""

    def phase(self, name: str) -> None:
        """Show nothing."""

    def step(self, position: int, total: int, phase: str, rate: float, rate_unit: str) -> None:
        """Show nothing."""

    def power(self, watts: float | None) -> None:
        """Show nothing."""

    def attempt_finished(self, point_id: str, outcome: str, ok: bool, figure: Estimate | None = None) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""

    def finished(self) -> None:
        """Show nothing."""
