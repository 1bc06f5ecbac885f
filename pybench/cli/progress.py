"""Progress for people: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, TextIO

from pybench.model.progress import Progress
from pybench.report.numbers import plain
from pybench.report.printable import printable

if TYPE_CHECKING:
    from rich.status import Status


class PlainProgress:
    """One line for each event that matters; nothing is overwritten, so a log file stays readable."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._started_s = 0.0
        self._heading = ""
        self._rate = ""

    def run_started(self, run_id: str, folder: str, num_attempts: int) -> None:
        """Say where the run is kept."""
        self._say(f"run {run_id}: {num_attempts} attempts, kept in {folder}")

    def attempt_started(self, point_id: str, attempt: int, position: int, total: int) -> None:
        """Remember what is running."""
        self._heading = f"[{position}/{total}] {point_id} attempt {attempt}"
        self._started_s = time.monotonic()
        self._rate = ""

    def phase(self, name: str) -> None:
        """Phases pass too quickly for a line of their own."""

    def step(self, position: int, total: int, phase: str, rate: float, rate_unit: str) -> None:
        """Keep the newest rate for the attempt's line."""
        del position, total
        if phase == "measure":
            self._rate = f", {plain(rate)} {rate_unit}"

    def power(self, watts: float | None) -> None:
        """Power is in the report."""

    def attempt_finished(self, point_id: str, outcome: str, ok: bool) -> None:
        """Tell how the attempt went and how long it took."""
        del point_id
        rate = self._rate if ok else ""
        self._say(f"{self._heading}: {outcome}{rate} ({time.monotonic() - self._started_s:.1f} s)")

    def note(self, text: str) -> None:
        """Pass it on."""
        self._say(text)

    def finished(self) -> None:
        """Nothing is left open."""

    def _say(self, text: str) -> None:
        print(printable(text), file=self._stream, flush=True)


class LiveProgress(PlainProgress):
    """Plain lines for finished attempts above one live line: point, phase, step, rate, watts, time left."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        from rich.console import Console
        from rich.text import Text

        self._text = Text
        self._console = Console(file=stream)
        self._status: Status = self._console.status("starting")
        self._durations_s: list[float] = []
        self._left = 0
        self._phase = self._steps = self._watts = ""

    def run_started(self, run_id: str, folder: str, num_attempts: int) -> None:
        """Open the live line."""
        super().run_started(run_id, folder, num_attempts)
        self._status.start()

    def attempt_started(self, point_id: str, attempt: int, position: int, total: int) -> None:
        """Show the attempt that begins."""
        super().attempt_started(point_id, attempt, position, total)
        self._left = total - position
        self._phase, self._steps, self._watts = "starting", "", ""
        self._show()

    def phase(self, name: str) -> None:
        """Show the phase."""
        self._phase, self._steps = name, ""
        self._show()

    def step(self, position: int, total: int, phase: str, rate: float, rate_unit: str) -> None:
        """Show the step and its rate."""
        super().step(position, total, phase, rate, rate_unit)
        self._steps = f" {position}/{total}, {plain(rate)} {rate_unit}"
        self._show()

    def power(self, watts: float | None) -> None:
        """Show the newest power."""
        self._watts = "" if watts is None else f", {watts:,.0f} W"
        self._show()

    def attempt_finished(self, point_id: str, outcome: str, ok: bool) -> None:
        """Let the attempt's line stand above the live one."""
        self._durations_s.append(time.monotonic() - self._started_s)
        super().attempt_finished(point_id, outcome, ok)

    def finished(self) -> None:
        """Close the live line."""
        self._status.stop()

    def _say(self, text: str) -> None:
        self._console.print(self._text(printable(text)), soft_wrap=True)

    def _show(self) -> None:
        left = ""
        if self._durations_s:
            left = f", about {(self._left + 1) * statistics.median(self._durations_s) / 60:.1f} min left"
        line = f"{self._heading}: {self._phase}{self._steps}{self._watts}{left}"
        self._status.update(self._text(printable(line)))


def make_progress(stream: TextIO) -> Progress:
    """Live progress when ``stream`` is a terminal, plain lines otherwise."""
    return LiveProgress(stream) if stream.isatty() else PlainProgress(stream)
