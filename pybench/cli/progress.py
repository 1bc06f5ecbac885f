"""Progress for people: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING, TextIO

from pybench.cli.io import broken_lines, echo, encodable
from pybench.core.numbers import plain, quantity
from pybench.model.progress import Progress
from pybench.model.results import Estimate
from pybench.model.text import plural, rough_time
from pybench.report.table import cut, printable
from pybench.report.text.labels import short_labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.status import Status
    from rich.text import Text

    from pybench.model.suite import Point

_PHASES = {
    "starting": "starting the worker",
    "prepare": "loading the model",
    "warmup": "warm-up",
    "measure": "measuring",
    "finish": "finishing",
}
_WIDTH = 80


class PlainProgress(Progress):
    """One line for each event that matters, steps excepted; nothing is overwritten: logs stay readable."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._started_s = self._run_started_s = 0.0
        self._point_id = self._place = self._attempt = ""
        self._labels: dict[str, str] = {}
        self._took_s: dict[str, list[float]] = {}
        self._left = 0
        self._expected_s: float | None = None
        self._is_timed = self._is_first_round = False

    def run_started(
        self, run_id: str, folder: str, points: Sequence[Point], num_attempts: int, expected_s: float | None = None
    ) -> None:
        """Show where the run is kept, and how long it takes; without an earlier run the first round shows that."""
        self._labels = short_labels(points, with_benchmark=True)
        self._is_timed, self._expected_s, self._run_started_s = expected_s is not None, expected_s, time.monotonic()
        takes = "" if expected_s is None else f", about {rough_time(expected_s)} by earlier attempts"
        self.note(f"run {run_id}: {plural(num_attempts, 'attempt')}{takes}, kept in {folder}")

    def attempt_started(self, point_id: str, attempt: int, position: int, total: int) -> None:
        """Keep what runs for the attempt's line; after the first round, show how long the rest takes."""
        self._is_first_round = attempt == 1
        left_s = self._left_by_rounds_s(point_id, 0.0, total - position)
        if not (self._is_timed or self._is_first_round) and left_s is not None:
            self._is_timed = True
            num_left = total - position + 1
            others = "attempt" if num_left == 1 else f"{num_left} attempts"
            self.note(f"about {rough_time(left_s)} for the other {others}, by the first round")
        self._point_id, self._place, self._attempt = point_id, f"[{position}/{total}]", f"attempt {attempt}"
        self._left = total - position
        self._started_s = time.monotonic()

    def attempt_finished(self, point_id: str, outcome: str, ok: bool, figure: Estimate | None = None) -> None:
        """Show how the attempt ended, its figure as the final table defines it, and how long it took."""
        took_s = time.monotonic() - self._started_s
        if ok:
            self._took_s.setdefault(point_id, []).append(took_s)
        value = f", {quantity(figure)}" if ok and figure is not None else ""
        result = f"{self._attempt}: {outcome}{value} ({took_s:.1f} s)"
        room = _WIDTH - len(f"{self._place}  {result}")
        self.note(f"{self._place} {cut(self._labels.get(point_id, point_id), room) if ok else point_id} {result}")

    def _left_by_rounds_s(self, point_id: str, elapsed_s: float, num_left: int) -> float | None:
        """Rest of the attempt that runs, and ``num_left`` others: the mean over the points' medians each."""
        if not self._took_s:
            return None
        medians = {other: statistics.median(took) for other, took in self._took_s.items()}
        each_s = statistics.fmean(medians.values())
        return max(medians.get(point_id, each_s) - elapsed_s, 0.0) + num_left * each_s

    def note(self, text: str) -> None:
        """Show it on a line of its own."""
        echo(printable(text), stream=self._stream)


class LiveProgress(PlainProgress):
    """Plain lines for finished attempts above one live line: point, phase, step, rate, watts, time left."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        from rich.console import Console
        from rich.text import Text

        self._text = Text
        self._console = Console(file=stream, no_color=bool(os.environ.get("NO_COLOR")))
        spinner = "dots" if encodable("⠋", stream.encoding) == "⠋" else "line"
        self._status: Status = self._console.status("starting", spinner=spinner)
        self._rates: list[float] = []
        self._phase = self._steps = self._watts = ""

    def attempt_started(self, point_id: str, attempt: int, position: int, total: int) -> None:
        """Show the attempt that begins; the first one opens the live line."""
        super().attempt_started(point_id, attempt, position, total)
        self._phase, self._steps, self._watts, self._rates = "starting", "", "", []
        # The line is made anew at each refresh, so that the time in a phase without events counts up.
        self._status.update(self)
        self._status.start()

    def phase(self, name: str) -> None:
        """Show the phase."""
        self._phase, self._steps = name, ""

    def step(self, position: int, total: int, phase: str, rate: float, rate_unit: str) -> None:
        """Show the step and the median rate of the measured steps so far; in the warm-up the step's own rate."""
        if phase == "measure":
            self._rates.append(rate)
        shown, which = (statistics.median(self._rates), "median ") if self._rates else (rate, "")
        self._steps = f" {position}/{total}, {which}{plain(shown)} {rate_unit}"

    def power(self, watts: float | None) -> None:
        """Show the newest power."""
        self._watts = "" if watts is None else f", {watts:,.0f} W"

    def finished(self) -> None:
        """Close the live line."""
        self._status.stop()

    def __rich__(self) -> Text:
        """The live line at each refresh; a narrow terminal cuts the name of the point, not the time left."""
        elapsed_s = time.monotonic() - self._started_s
        left_s = self._left_s(elapsed_s)
        left = "" if left_s is None else f", about {rough_time(left_s)} left"
        lasts = f" {elapsed_s:.0f} s" if self._phase in {"starting", "prepare"} else ""
        doing = f"{_PHASES.get(self._phase, self._phase)}{lasts}{self._steps}"
        label = self._labels.get(self._point_id, self._point_id)
        text = f"{self._place} {doing}{self._watts}{left}: {label} {self._attempt}"
        text = encodable(printable(text), self._stream.encoding)
        return self._text(text, no_wrap=True, overflow="ellipsis")

    def _left_s(self, elapsed_s: float) -> float | None:
        """Seconds to the end, in the first round by earlier runs alone; ``None`` where nothing shows it."""
        if not self._is_first_round:
            return self._left_by_rounds_s(self._point_id, elapsed_s, self._left)
        if self._expected_s is None:
            return None
        left_s = self._expected_s - (time.monotonic() - self._run_started_s)
        return left_s if left_s > 0.0 else None

    def note(self, text: str) -> None:
        """Show it above the live line."""
        shown = broken_lines(encodable(printable(text), self._stream.encoding))
        self._console.print(self._text(shown), soft_wrap=True)


def make_progress(stream: TextIO, *, quiet: bool = False) -> Progress:
    """Live progress when ``stream`` is a terminal, plain lines otherwise; none where ``quiet``."""
    if quiet:
        return Progress()
    return LiveProgress(stream) if stream.isatty() else PlainProgress(stream)
