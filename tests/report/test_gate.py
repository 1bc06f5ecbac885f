"""What ``pybench gate`` prints at 80 columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pybench.nightly.gate import judge_night
from pybench.nightly.gate_text import render
from pybench.nightly.history import Series
from pybench.nightly.rerun import unconfirmed
from tests.nights import Fleet, Slower, silent

FAR_OFF = 33
"""A seed of nights of which the last has two slow attempts at point 0."""
QUIET = Fleet(night_sds=(0.005, 0.005), bad_attempts=0.0, bad_nights=0.0)


def shown(slower: Slower, *, detail: bool = False, vanished: tuple[int, ...] = ()) -> str:
    series = replace(QUIET, slower=slower).series(np.random.default_rng(5), 30, vanished=vanished)
    result = unconfirmed(judge_night(series), "another machine")
    return render(result, series.runs, detail=detail)


def test_a_flagged_row_has_its_date_its_spread_and_the_way_on() -> None:
    """And the verdict stands first and last."""
    text = shown(lambda point, night: 0.04 * (point == 3 and night >= 26))
    lines = text.splitlines()
    assert lines[:3] == ["s: regressed", "run 2026-01-31 against 30 nights before it", "not confirmed: another machine"]
    assert max(map(len, lines)) <= 80
    (row,) = [line for line in lines if line.startswith("point 3  speed")]
    assert row.split()[-2:] == ["%", "2026-01-27"]
    assert "next: compare the software of both sides of the date" in text
    assert " ".join(lines[-2:]).startswith(
        "verdict: regressed - of 40 rows: 2 regressed, 38 pass; smallest effect 1 %;   one night "
    )


def test_one_broken_night_is_one() -> None:
    """As two are two."""
    result = judge_night(replace(QUIET.series(np.random.default_rng(5), 30), broken=("night 7",)))
    assert "left out: 1 broken night, the last night 7\n" in render(result, [])
    assert "left out: 2 broken nights, the last b\n" in render(replace(result, broken=("a", "b")), [])


def test_a_host_shift_is_one_line() -> None:
    """And its rows one table."""
    text = shown(lambda _point, night: 0.03 * (night == 30))
    assert text.startswith("s: host off\n")
    assert text.count("host off: speed") == 1
    assert "at 20 of 20 points: no clock and no temperature was read" in " ".join(text.split())


def test_a_host_that_is_off_is_accepted_by_what_stands_there() -> None:
    """The entry can be copied from 80 columns, and holds once it has a reason."""
    series = replace(QUIET, slower=lambda _point, night: 0.03 * (night >= 28)).series(np.random.default_rng(5), 30)
    gpus = {"gpu": '["NVIDIA H200 GPU-739c0fb5-d7b3-5f86-545d-0c41f279dd44", "NVIDIA H200 GPU-1"]'}
    series = Series(tuple(replace(run, keys=gpus, suite="s" * 64) for run in series.runs))
    lines = render(judge_night(series), series.runs).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("next: "))
    assert lines[start:-2] == [
        "next: pybench doctor, and pybench run node_check; without a cause there, what",
        "  all points share has changed. Where the host stays so for good, accepted.toml",
        "  (schema = 1) takes, with a reason:",
        "  [[accepted]]",
        f'  suite = "{"s" * 64}"',
        '  gpu = "GPU-739c0fb5-d7b3-5f86-545d-0c41f279dd44"',
        "  date = 2026-01-29",
        '  reason = ""',
    ]
    assert max(map(len, lines)) <= 80
    assert "read; since 2026-01-29" in " ".join(" ".join(lines).split())
    assert lines[-2].startswith("verdict: host off - ")


def test_no_host_is_accepted_beside_a_row_that_is_worse() -> None:
    """Accepting the shift would also accept a loss of one point, so the report names that point first."""
    text = shown(lambda point, night: 0.03 * (night >= 28) + 0.05 * (point == 3 and night == 30))
    assert text.startswith("s: regressed\n")
    assert "host off: speed" in text
    assert "[[accepted]]" not in text


def test_vanished_points_stand_in_one_paragraph() -> None:
    """With their reason."""
    text = shown(lambda _point, _night: 0.0, vanished=(1, 2))
    assert "point 1; point 2 (speed, energy of each): the suite has no such point" in " ".join(text.split())


def test_a_night_that_measured_nothing_is_to_be_finished() -> None:
    """Not looked for among accepted changes."""
    series = QUIET.series(np.random.default_rng(5), 9)
    nights = Series((*series.runs[:-1], silent(series.last)))
    text = " ".join(render(judge_night(nights), nights.runs).split())
    assert "next: finish the run, if it was interrupted: pybench run --resume RUN" in text
    assert "accepted.toml" not in text


@pytest.mark.parametrize(("num_failed", "step"), [(0, "finish the run"), (3, "see the run's own report")])
def test_a_night_without_some_of_its_points_is_to_be_finished(num_failed: int, step: str) -> None:
    """Where they were not reached, though others were measured; points that failed are to be looked at."""
    series = QUIET.series(np.random.default_rng(5), 9)
    first, *others = series.last.points
    gone = replace(first, medians={}, absence="not measured", is_missing=True, num_failed=num_failed)
    nights = Series((*series.runs[:-1], replace(series.last, points=(gone, *others))))
    text = render(judge_night(nights), nights.runs)
    assert "not measured: 2 rows" in text
    assert f"\nnext: {step}" in text


def test_nights_of_another_stack_are_allowed_by_their_key() -> None:
    """As `pybench compare` names it."""
    series = QUIET.series(np.random.default_rng(5), 9)
    nights = Series((series.last,), apart={"vllm: 0.20.2 -> 0.21.0": 9})
    text = " ".join(render(judge_night(nights), nights.runs).split())
    assert "next: undo the change, or allow it: --across vllm; else keep the run in the history" in text
    other = Series((series.last,), apart={"gpu: 1 x H100 (GPU-1) -> 1 x H100 (GPU-2)": 9})
    text = " ".join(render(judge_night(other), other.runs).split())
    assert "next: no earlier night is of this machine" in text


def test_a_point_that_no_night_has_and_that_failed_is_named() -> None:
    """With its reason, and in the verdict."""
    series = QUIET.series(np.random.default_rng(5), 9)
    new = replace(
        series.last.points[0], id="new", axes={"point": 99}, medians={}, absence="exit code 9", is_missing=True
    )
    last = replace(series.last, points=(*series.last.points, new))
    text = render(judge_night(Series((*series.runs[:-1], last))), (*series.runs, last))
    assert "not measured: 1 point that no night has\n  point 99: exit code 9\n" in text
    assert "verdict: not measured - of 40 rows: 40 pass, 1 point not measured; " in text


def test_rows_that_pass_are_shown_with_detail() -> None:
    """Else they are counted."""
    assert "pass: 40 rows" in shown(lambda _point, _night: 0.0, detail=True)
    assert "pass: 40 rows" not in shown(lambda _point, _night: 0.0)


def test_a_row_that_passes_far_off_is_named_with_the_reason() -> None:
    """Of a second speed; without ``-v``, too."""
    series = replace(QUIET, second_speed=(0.2, 0.047), num_points=6).series(np.random.default_rng(FAR_OFF), 30)
    text = render(judge_night(series), series.runs)
    assert "s: pass\n" in text
    assert "pass, though far off: 2 rows\n  point 0 (energy, speed): single attempts of earlier nights" in text


def test_a_run_without_any_figure_has_the_reason() -> None:
    """Such as a kept file of an older version."""
    series = QUIET.series(np.random.default_rng(5), 2)
    points = tuple(replace(point, medians={}, absence="an old file; rebuild it") for point in series.last.points)
    alone = Series((replace(series.last, points=points),))
    lines = render(judge_night(alone), alone.runs).splitlines()
    assert "p0: an old file; rebuild it" in lines
    assert lines[-1].endswith(" - no row was measured")
