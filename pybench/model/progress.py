"""What the runner tells while it works. Showing it is the command line's business."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Listener to one run."""

    def run_started(self, run_id: str, folder: str, num_attempts: int) -> None:
        """Begin a run with ``num_attempts`` attempts owed."""

    def attempt_started(self, point_id: str, attempt: int, position: int, total: int) -> None:
        """Start attempt ``position`` of ``total``."""

    def phase(self, name: str) -> None:
        """Enter a phase of the worker."""

    def step(self, position: int, total: int, phase: str, rate: float, rate_unit: str) -> None:
        """Finish a step: ``position`` of at most ``total`` in this phase."""

    def power(self, watts: float | None) -> None:
        """Show the newest power of all GPUs of the point, in W; ``None`` where unknown."""

    def attempt_finished(self, point_id: str, outcome: str, ok: bool) -> None:
        """Finish an attempt; ``outcome`` is ``ok`` or the cause of its failure."""

    def note(self, text: str) -> None:
        """Say something the user should know."""

    def finished(self) -> None:
        """End, also when interrupted."""
