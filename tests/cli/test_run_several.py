"""Two software stacks in turn, and the same one several times."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from pybench.cli.exit_codes import BY_VERDICT, INTERRUPTED
from pybench.cli.main import main
from pybench.files.run.folder import RunFolder
from pybench.run.engines import local
from pybench.run.loop import Run
from tests.cli.conftest import Drill


def _worker(here: Path, drill: Drill, name: str, slower: float = 1.0) -> str:
    """A Python whose workers are fakes, ``slower`` times the usual step."""
    python = Path(drill()[-1]).rename(here / name)
    fakes = f"export FAKE_STRETCH={slower} FAKE_NOISE={len(name)}:0.001 "
    python.write_text(python.read_text().replace("export ", fakes, 1))
    return str(python)


def _journals(here: Path) -> list[list[tuple[str, int, str]]]:
    """Point, attempt and start of each record of each run, by the run's name."""
    found = []
    for folder in sorted((here / "runs").iterdir()):
        lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
        records = [line.get("record", line) for line in lines]
        found.append([(one["point_id"], one["attempt"], one["started_utc"]) for one in records if "point_id" in one])
    return found


def _part_of(here: Path) -> list[str | None]:
    """The values recorded in each run's manifest."""
    return [RunFolder.open(folder).read_manifest().part_of for folder in (here / "runs").iterdir() if folder.is_dir()]


def test_two_equal_stacks_are_unchanged(here: Path, drill: Drill) -> None:
    """Each run keeps its records; every row has its interval, and the verdict equals that of compare."""
    drill()
    a, b = _worker(here, drill, "stack-a"), _worker(here, drill, "stack-b")
    done = CliRunner().invoke(main, ("run", "drill.toml", "--ab", a, b))
    assert done.exit_code == 0, done.output
    assert "drill: unchanged" in done.output
    assert f"A: {a}: " in done.output
    assert f"B: {b}: " in done.output
    assert [len(records) for records in _journals(here)] == [4, 4]
    assert _part_of(here) == ["ab", "ab"]
    headings = re.findall(r"\[(\d)/8\] ([AB]) decode TP (\d) attempt (\d)", done.output)
    assert ["".join(one) for one in headings] == ["1A11", "2B11", "3A21", "4B21", "5B22", "6A22", "7B12", "8A12"]
    assert "for the other 4 attempts, by the first round" in done.output
    again = re.search(r"again: pybench (.*)", done.output)
    assert again
    assert CliRunner().invoke(main, again[1].split()).exit_code == 0


def test_two_stacks_that_both_fail_are_an_error(here: Path, drill: Drill) -> None:
    """Nothing is compared: the exit code is that of a run that ends so, and the next step is named."""
    python = drill(behaviour="crash")[-1]
    done = CliRunner().invoke(main, ("run", "drill.toml", "--ab", python, python, "--runs", "my runs"))
    assert done.exit_code == BY_VERDICT["error"], done.output
    assert "both ended in an error; the cause, and what to do: pybench report " in done.output
    for command in re.findall(r"pybench (compare .*|report .*)", done.output):
        expected = 6 if command.startswith("compare") else 0
        assert CliRunner().invoke(main, shlex.split(command)).exit_code == expected, command


def test_a_slower_stack_differs(here: Path, drill: Drill) -> None:
    """5 % more time in each step is found, and the exit code is 5; the other way round it improves."""
    drill()
    a, b = _worker(here, drill, "stack-a"), _worker(here, drill, "stack-b", slower=1.05)
    done = CliRunner().invoke(main, ("run", "drill.toml", "--ab", a, b))
    assert done.exit_code == 5, done.output
    assert "drill: differs" in done.output
    assert "-4.76" in done.output or "-4.8" in done.output
    done = CliRunner().invoke(main, ("run", "drill.toml", "--ab", b, a, "--runs", "turned"))
    assert done.exit_code == 0, done.output
    assert "improved" in done.output


def test_a_stack_that_fails_is_not_measured(here: Path, drill: Drill) -> None:
    """The other stack's figures stand; the row that B lacks fails."""
    drill()
    a = _worker(here, drill, "stack-a")
    b = str(Path(drill("crash")[-1]).rename(here / "stack-b"))
    done = CliRunner().invoke(main, ("run", "drill.toml", "--ab", a, b))
    assert done.exit_code == 1, done.output
    assert "not measured" in done.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--ab", "no-such-python", "other"), "no-such-python"),
        (("--ab", "python", "python", "--python", "python"), "leave out --python and --image"),
        (("--ab", "python", "python", "--engine", "docker"), "it goes with --engine none, not docker"),
        (("--ab", "a", "b", "--aa", "3"), "one of --ab and --aa"),
        (("--aa", "1"), "2<=x<=100"),
    ],
)
def test_what_cannot_be_run_is_refused(here: Path, drill: Drill, options: tuple[str, ...], message: str) -> None:
    """And no run's folder is left behind."""
    drill()
    done = CliRunner().invoke(main, ("run", "drill.toml", *options))
    assert done.exit_code in {2, 3}, done.output
    assert message in " ".join(done.output.split())
    assert not (here / "runs").exists() or not list((here / "runs").iterdir())


@pytest.mark.parametrize("lacking", [("stack-a",), ("stack-a", "stack-b")])
def test_stacks_without_a_point_in_common_are_refused(
    here: Path, drill: Drill, monkeypatch: pytest.MonkeyPatch, lacking: tuple[str, ...]
) -> None:
    """The command fails before any measurement, and names each stack with its missing parts."""
    monkeypatch.setattr(local, "missing_packages", lambda python, names: names if Path(python).name in lacking else ())
    stacks = [_worker(here, drill, name) for name in ("stack-a", "stack-b")]
    done = CliRunner().invoke(main, ("run", "drill.toml", "--ab", *stacks))
    assert done.exit_code == 2, done.output
    first, *others = done.stderr.splitlines()
    assert first == "pybench: --ab: no point that both can measure"
    why = "can't measure 2 points: backend torch needs torch and transformers, not found here: "
    assert [line[2:3] for line in others if line[4:].startswith(why)] == ["A", "B"][: len(lacking)]
    assert not list((here / "runs").iterdir())


def test_what_one_stack_alone_can_measure_is_noted(here: Path, drill: Drill, monkeypatch: pytest.MonkeyPatch) -> None:
    """First of all: it takes its time, and the comparison has nothing of it."""
    stacks = [_worker(here, drill, name) for name in ("stack-a", "stack-b")]
    monkeypatch.setattr(
        local,
        "missing_packages",
        lambda python, names: ("accelerate",) if python == stacks[0] and "accelerate" in names else (),
    )
    suite = here / "drill.toml"
    text = suite.read_text().replace('backend = "torch"\n', "")
    suite.write_text(text.replace("= [1, 2]", '= [1]\nbackend = ["torch", "transformers"]'))
    done = CliRunner().invoke(main, ("run", str(suite), "--ab", *stacks))
    note, *_ = done.stderr.splitlines()
    assert note.startswith("--ab: A can't measure 1 point: backend transformers needs accelerate, not found here: ")
    assert [len(records) for records in _journals(here)] == [2, 4]
    labels = re.findall(r"\[\d/6\] ([AB] .*?) attempt", done.output)
    assert sorted(set(labels)) == ["A decode torch", "B decode torch", "B decode transformers"]


def test_a_suite_is_repeated_as_runs_of_their_own(here: Path, drill: Drill) -> None:
    """Three runs, each whole; the history reads all of them."""
    done = CliRunner().invoke(main, (*drill(), "--aa", "3"))
    assert done.exit_code == 0, done.output
    folders = sorted((here / "runs").iterdir())
    assert len([folder for folder in folders if (folder / "results.json").is_file()]) == 3
    assert "run 3 of 3: pass" in done.output
    assert _part_of(here) == ["aa"] * 3
    shown = CliRunner().invoke(main, ("history", "runs"))
    assert shown.exit_code == 0, shown.output
    assert done.output.endswith(shown.output)


def test_a_time_limit_is_for_all_runs_together(here: Path, drill: Drill) -> None:
    """Equal runs: none is cut short, and the first is always made. Its steps alone take more than half of the time."""
    done = CliRunner().invoke(main, (*drill(FAKE_STEP_MS="50"), "--aa", "3", "--time-limit", "1s"))
    assert done.exit_code == 0, done.output
    assert "run 1 of 3: pass" in done.output
    assert "--time-limit 1s: no time for run 2 of 3" in done.output
    (run,) = [folder for folder in (here / "runs").iterdir() if folder.is_dir()]
    assert RunFolder.open(run).read_manifest().options.time_limit_s is None


def test_what_holds_for_all_runs_is_noted_once(here: Path, drill: Drill) -> None:
    """That a Python of this machine leaves the suite's container out is the same each time."""
    arguments = drill()
    with (here / "drill.toml").open("a") as suite:
        suite.write('\n[container.environment]\nNCCL_DEBUG = "WARN"\n')
    done = CliRunner().invoke(main, (*arguments, "--aa", "2"))
    assert done.exit_code == 0, done.output
    assert done.output.count("the suite's [container] has no effect") == 1


def test_an_interrupted_repetition_names_its_python(here: Path, drill: Drill, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run goes on with the Python that began it alone."""

    def interrupted(_run: Run, _progress: object) -> None:
        raise KeyboardInterrupt

    arguments = drill()
    monkeypatch.setattr(Run, "finish", interrupted)
    done = CliRunner().invoke(main, (*arguments, "--aa", "2"))
    assert done.exit_code == INTERRUPTED, done.output
    (run,) = [folder for folder in (here / "runs").iterdir() if folder.is_dir()]
    assert "run 1 of 2 is not finished" in done.stderr
    assert f"interrupted; go on with: pybench run --resume {run} --python {arguments[-1]}\n" in done.stderr
