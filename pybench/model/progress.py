"""Progress that the runner reports and the command line shows."""

from __future__ import annotations

from collections.abc import Sequence

from pybench.model.results import Estimate
from pybench.model.suite import Point


class Progress:
    """Listener to one run; it ignores what a subclass does not show."""

    def run_started(
        self, run_id: str, folder: str, points: Sequence[Point], num_attempts: int, expected_s: float | None = None
    ) -> None:
        """Begin a run of ``points`` with ``num_attempts`` attempts owed, which take about ``expected_s``."""

    def attempt_started(self, point_id: str, attempt: int, position: int, total: int) -> None:
        """Start attempt ``position`` of ``total``."""

    def phase(self, name: str) -> None:
        """Enter a phase of the worker."""

    def step(self, position: int, total: int, phase: str, rate: float, rate_unit: str) -> None:
        """Finish a step: ``position`` of at most ``total`` in this phase."""

    def power(self, watts: float | None) -> None:
        """Show the newest power of all GPUs of the point, in W; ``None`` where unknown."""

    def attempt_finished(self, point_id: str, outcome: str, ok: bool, figure: Estimate | None = None) -> None:
        """Finish an attempt; ``outcome`` is ``ok`` or the cause of its failure, ``figure`` its headline figure."""

    def note(self, text: str) -> None:
        """Show a message to the user."""

    def finished(self) -> None:
        """End, also when interrupted."""
