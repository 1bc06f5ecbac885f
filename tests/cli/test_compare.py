"""``pybench compare`` on runs of a worker whose steps have the length that a test wants."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pybench.cli.main import main

Drill = Callable[..., tuple[str, ...]]
Measure = Callable[..., str]


def compare(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["compare", *arguments])


@pytest.fixture
def measure(here: Path, drill: Drill, monkeypatch: pytest.MonkeyPatch) -> Measure:
    """Make a run; steps are longer by ``stretch`` at the points of ``where``.

    All runs share one folder, which gives runs of one second different ids.
    """
    root = here / "runs"

    def run(name: str, stretch: float = 1.0, where: str = "", **environment: str) -> str:
        for variable, value in environment.items():
            monkeypatch.setenv(variable, value)
        arguments = drill(FAKE_STRETCH=str(stretch), FAKE_POINT=where, FAKE_NOISE=f"{name}:0.001")
        before = set(root.glob("*"))
        done = CliRunner().invoke(main, [*arguments, "--runs", str(root)])
        assert done.exit_code in {0, 1, 4}, done.output
        (folder,) = set(root.iterdir()) - before
        return str(folder)

    return run


def test_equal_runs_are_unchanged(measure: Measure) -> None:
    """Attempts are 0.1 % apart."""
    done = compare(measure("now"), measure("then"))
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("drill: unchanged\n")


def test_a_planted_slowdown_of_3_percent_is_found_at_its_point(measure: Measure) -> None:
    """And the other point is unchanged. The file alone gives the same as the folder."""
    then, now = measure("then"), measure("now", 1.03, "tensor_parallel=2")
    done = compare(now, then, "--smallest", "1")
    assert done.exit_code == 5, done.output
    assert "TP 2   speed" in done.stdout
    assert "TP 1" not in done.stdout
    files = compare(f"{now}/results.json", f"{then}/results.json", "--smallest", "1")
    assert files.stdout == done.stdout


def test_a_vanished_point_fails_and_a_new_one_is_listed(here: Path, measure: Measure, drill: Drill) -> None:
    """Left out by -k now; not there before."""
    then = measure("then")
    assert CliRunner().invoke(main, [*drill(), "--runs", "runs", "-k", "tensor_parallel=1"]).exit_code in {1, 4}
    (now,) = set((here / "runs").iterdir()) - {Path(then)}
    done = compare(str(now), then)
    assert done.exit_code == 1
    assert "left out by -k tensor_parallel=1" in " ".join(done.stdout.split())
    assert "New rows, which no reference has" in compare(then, str(now)).stdout


def test_a_variable_that_differs_is_refused_by_name(measure: Measure) -> None:
    """Until it is allowed."""
    then, now = measure("then"), measure("now", NCCL_ALGO="Ring")
    done = compare(now, then)
    assert done.exit_code == 6
    assert "differs: $NCCL_ALGO: none -> Ring" in done.stdout
    assert compare(now, then, "--across", "environment").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--across", "drivre"), "--across drivre: no such key; there are"),
        (("--smallest", "x"), "--smallest x: give per cent between 0 and 100, such as 1.5 or ttft_s=3"),
        (("--smallest", "nope=1"), "nope is no metric"),
        (("--smallest", "nan"), "--smallest nan: give per cent"),
        (("--metric", "nope"), "--metric nope: no such metric"),
        (("-o", "json=x", "-o", "junit=x"), "-o junit x: -o json writes this file, too"),
    ],
)
def test_a_bad_option_is_refused(finished: Path, arguments: tuple[str, ...], message: str) -> None:
    """The error lists the valid values."""
    done = compare(str(finished), str(finished), *arguments)
    assert done.exit_code == 2
    assert message in done.stderr


def test_a_run_that_is_given_twice_is_refused(here: Path, measure: Measure) -> None:
    """A run as its own reference, or named twice, by folder or results, is refused: it would agree with itself."""
    then, now = measure("then"), measure("now")
    for paths, message in {
        (now, now): f"{Path(now).name} is the run itself",
        (now, f"{now}/results.json"): f"{Path(now).name} is the run itself",
        (now, then, f"{then}/results.json"): f"{Path(then).name} is given twice as a reference",
    }.items():
        done = CliRunner().invoke(main, ["compare", *paths])
        assert (done.exit_code, done.stdout) == (2, ""), done.output
        assert message in done.stderr


def test_what_is_no_run_is_refused(here: Path, finished: Path) -> None:
    """Bad references: a folder, a file without JSON, another version, a pipe, a missing file."""
    good = str(finished)
    results = json.loads((finished / "results.json").read_text())
    (here / "other.json").write_text(json.dumps({**results, "schema_version": 99}))
    (here / "bad.json").write_text("{")
    (here / "empty").mkdir()
    for name, message in {
        "other.json": "results of version 99, this pybench reads 2",
        "bad.json": "not a results.json that this pybench reads",
        "absent.json": "cannot read the results: No such file",
        "empty": "no run here (no manifest.json)",
    }.items():
        done = compare(good, name)
        assert done.exit_code == 2, name
        assert message in done.stderr
        assert done.stdout == ""
