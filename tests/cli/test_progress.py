"""Progress, as a log file and as a terminal see it."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pybench.cli import progress
from pybench.core.plan import point_id
from pybench.model.progress import Progress
from pybench.model.suite import AxisValue, Effort, Point
from pybench.model.text import rough_time
from pybench.model.workloads.node import Matmul
from pybench.report.table import cut
from tests.builders import estimate

_POINT = "decode[backend=torch,tensor_parallel=2]"


def _point(benchmark: str, **axes: AxisValue) -> Point:
    return Point(
        id=point_id(benchmark, axes),
        benchmark=benchmark,
        axes=axes,
        settings=Matmul(backend="torch"),
        effort=Effort(),
        architecture=None,
    )


_POINTS = (
    _point("decode", backend="torch", tensor_parallel=2),
    _point("decode", backend="transformers", tensor_parallel=4),
)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that a test moves by hand."""
    hand = SimpleNamespace(now_s=100.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: hand.now_s))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    return hand


def _attempt(shown: Progress, clock: SimpleNamespace, outcome: str = "ok", *, figure: float = 1234.5) -> None:
    shown.attempt_started(_POINT, 1, 1, 4)
    shown.phase("warmup")
    shown.step(1, 10, "warmup", 5.0, "tok/s")
    shown.phase("measure")
    shown.power(None)
    shown.power(1234.0)
    shown.step(1, 5, "measure", 900.0, "tok/s")
    clock.now_s += 90.0
    found = estimate(figure, "tokens/s")
    shown.attempt_finished(_POINT, outcome, outcome == "ok", found)


def test_plain_lines(clock: SimpleNamespace) -> None:
    """One for the run, one for each attempt with the figure of the final table, one for each note."""
    stream = io.StringIO()
    shown = progress.make_progress(stream)
    shown.run_started("run", "runs/run", _POINTS, 4, 420.0)
    _attempt(shown, clock)
    _attempt(shown, clock, "out_of_memory: tried 2 GiB")
    shown.note("a note")
    shown.finished()
    assert stream.getvalue().splitlines() == [
        "run run: 4 attempts, about 7.0 min by earlier attempts, kept in runs/run",
        "[1/4] decode torch, TP 2 attempt 1: ok, 1,234 tok/s (90.0 s)",
        f"[1/4] {_POINT} attempt 1: out_of_memory: tried 2 GiB (90.0 s)",
        "a note",
    ]


def test_a_finished_attempt_fits_80_columns(clock: SimpleNamespace) -> None:
    """Labels match the final table; a failure keeps the whole id, since its message needs more lines."""
    sizes = [_point("decode", backend="transformers", tensor_parallel=n, batch_size=32 * n) for n in (1, 2)]
    stream = io.StringIO()
    shown = progress.make_progress(stream)
    shown.run_started("run", "runs/run", (*_POINTS, *sizes), 24)
    point = sizes[-1].id
    for ok in (True, False):
        shown.attempt_started(point, 3, 12, 24)
        clock.now_s += 90.0
        shown.attempt_finished(point, "ok" if ok else "signal", ok, estimate(11234.5, "tokens/s"))
    _, done, _, failed = stream.getvalue().splitlines()
    assert done == "[12/24] decode transformers, TP 2, batch 64 attempt 3: ok, 11,234 tok/s (90.0 s)"
    assert len(done) <= 80
    assert failed == f"[12/24] {point} attempt 3: signal (90.0 s)"


def test_words_are_cut_to_their_room() -> None:
    """Three dots stand for the rest."""
    assert [cut("decode torch", room) for room in (12, 11, 1)] == ["decode torch", "decode t...", "..."]


def test_what_all_points_share_is_not_repeated(clock: SimpleNamespace) -> None:
    """Labels match the final table: only axes that vary need room."""
    points = tuple(
        _point("gather_scatter", backend="torch", gpus=2, operation=operation, message_bytes=536870912)
        for operation in ("all_gather", "reduce_scatter")
    )
    stream = io.StringIO()
    shown = progress.make_progress(stream)
    shown.run_started("run", "runs/run", points, 2)
    for position, point in enumerate(points, 1):
        shown.attempt_started(point.id, 1, position, 2)
        clock.now_s += 0.5
        shown.attempt_finished(point.id, "ok", ok=True)
    assert stream.getvalue().splitlines()[1:] == [
        "[1/2] gather_scatter all_gather attempt 1: ok (0.5 s)",
        "[2/2] gather_scatter reduce_scatter attempt 1: ok (0.5 s)",
    ]


def _rounds(shown: Progress, clock: SimpleNamespace, *attempts: tuple[str, int, bool]) -> None:
    """Attempts at point ``a``, of 90 s, and ``b``, of 30 s; a failed one takes a second."""
    for position, (point, attempt, ok) in enumerate(attempts, 1):
        shown.attempt_started(point, attempt, position, len(attempts))
        clock.now_s += (90.0 if point == "a" else 30.0) if ok else 1.0
        shown.attempt_finished(point, "ok", ok=ok)


@pytest.mark.parametrize(
    ("attempts", "time"),
    [
        # 90 s and 30 s a point: the running one of 30 s, and three of their mean.
        (
            [("a", 1, True), ("b", 1, True), ("b", 2, True), ("a", 2, True), ("a", 3, True), ("b", 3, True)],
            "about 3.5 min for the other 4 attempts, by the first round",
        ),
        ([("a", 1, True), ("a", 2, True)], "about 1.5 min for the other attempt, by the first round"),
        # A failed attempt shows no time: both of the second round are point b.
        (
            [("a", 1, False), ("b", 1, True), ("b", 2, True), ("a", 2, True)],
            "about 1.0 min for the other 2 attempts, by the first round",
        ),
        ([("a", 1, False), ("a", 2, False)], None),
        # One attempt each: the first is that of the smallest point, and no measure of the others.
        ([("a", 1, True), ("b", 1, True)], None),
    ],
)
def test_the_first_round_shows_how_long_a_run_takes_that_was_never_made(
    clock: SimpleNamespace, attempts: list[tuple[str, int, bool]], time: str | None
) -> None:
    """Once, and not before each point was tried."""
    stream = io.StringIO()
    shown = progress.make_progress(stream)
    shown.run_started("run", "runs/run", (), len(attempts))
    _rounds(shown, clock, *attempts)
    lines = stream.getvalue().splitlines()
    assert lines[0] == f"run run: {len(attempts)} attempts, kept in runs/run"
    assert [line for line in lines if line.startswith("about")] == ([time] if time else [])


def test_the_live_line_of_the_first_round_counts_down_what_earlier_runs_took(clock: SimpleNamespace) -> None:
    """120 s expected, 90 s of them gone; without an earlier run, and beyond it, nothing."""
    for expected_s, left in (
        (120.0, "starting the worker 0 s, about 30 s left: b"),
        (None, "0 s: b"),
        (80.0, "0 s: b"),
    ):
        shown = progress.LiveProgress(_Terminal())
        shown.run_started("run", "runs/run", (), 2, expected_s)
        _rounds(shown, clock, ("a", 1, True))
        shown.attempt_started("b", 1, 2, 2)
        assert left in str(shown.__rich__())
        shown.finished()


def test_slow_rates_are_not_zero(clock: SimpleNamespace) -> None:
    """0.4 tokens a second is slow, not nothing."""
    stream = io.StringIO()
    _attempt(progress.make_progress(stream), clock, figure=0.4321)
    assert "ok, 0.4321 tok/s" in stream.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_a_workers_message_stays_on_its_line(clock: SimpleNamespace, *, terminal: bool) -> None:
    """It neither opens lines nor steers the terminal, nor speaks rich's markup."""
    stream = _Terminal() if terminal else io.StringIO()
    shown = progress.make_progress(stream)
    _attempt(shown, clock, "exception: a\nb\r\x1b[2Jc\x07 [bold]d[/bold] \ud800")
    shown.finished()
    assert "exception: a b  [2Jc  [bold]d[/bold]" in stream.getvalue()
    stream.getvalue().encode("utf-8")


def test_live_line_shows_point_phase_step_rate_watts_and_time_left(clock: SimpleNamespace) -> None:
    """Time left, from the second round on: the median attempt so far, times the attempts left: (3 + 1) times 90 s."""
    stream = _Terminal()
    shown = progress.make_progress(stream)
    shown.run_started("run", "runs/run", _POINTS, 4)
    _attempt(shown, clock)
    shown.attempt_started(_POINT, 2, 1, 4)
    shown.phase("measure")
    for position, rate in enumerate((900.0, 1200.0, 1300.0), start=1):
        shown.step(position, 5, "measure", rate, "tok/s")
    shown.power(1234.0)
    shown.finished()
    shown.finished()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert "[1/4] decode torch, TP 2 attempt 1: ok, 1,234 tok/s (90.0 s)" in text
    assert "[1/4] measuring 3/5, median 1,200 tok/s, 1,234 W, about 6.0 min left: decode torch, TP 2 attempt 2" in text


def test_live_line_of_a_long_start(clock: SimpleNamespace) -> None:
    """What happens, and for how long it has."""
    shown = progress.LiveProgress(_Terminal())
    shown.attempt_started(_POINT, 1, 1, 2)
    clock.now_s += 30.0
    shown.phase("prepare")
    assert str(shown.__rich__()) == f"[1/2] loading the model 30 s: {_POINT} attempt 1"
    clock.now_s += 50.0
    shown.step(1, 10, "warmup", 5.0, "tok/s")
    clock.now_s += 20.0
    shown.attempt_finished(_POINT, "ok", ok=True)
    shown.attempt_started(_POINT, 2, 2, 2)
    shown.phase("prepare")
    clock.now_s += 42.0
    expected = "loading the model 42 s, about 58 s left"
    assert str(shown.__rich__()) == f"[2/2] {expected}: {_POINT} attempt 2"


def test_the_time_left_weighs_every_point_alike(clock: SimpleNamespace) -> None:
    """Attempts go round over all points: 10 s and 30 s make 20 s each for the 4 that are left."""
    shown = progress.LiveProgress(_Terminal())
    for position, (point, took_s) in enumerate((("a", 10.0), ("a", 10.0), ("b", 30.0)), start=1):
        shown.attempt_started(point, 1, position, 8)
        clock.now_s += took_s
        shown.attempt_finished(point, "ok", ok=True)
    shown.attempt_started("b", 2, 4, 8)
    clock.now_s += 12.0
    assert f", about {rough_time(18.0 + 80.0)} left: b attempt 2" in str(shown.__rich__())


@pytest.mark.parametrize("terminal", [False, True])
def test_a_stream_without_utf8(clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> None:
    """Characters that the terminal lacks have substitutes; nothing raises, and NO_COLOR takes the colours away."""
    monkeypatch.setenv("NO_COLOR", "1")
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    shown = progress.make_progress(stream)
    _attempt(shown, clock, "exception: 5 µs ≥ 3 ☃")
    shown.finished()
    assert b"exception: 5 us >= 3 ?" in raw.getvalue()
    assert b"\x1b[3" not in raw.getvalue()


def test_plain_progress_needs_no_rich() -> None:
    """Only a terminal pays for it."""
    code = (
        "import io, sys; from pybench.cli.progress import make_progress; make_progress(io.StringIO()); "
        "print('rich' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
