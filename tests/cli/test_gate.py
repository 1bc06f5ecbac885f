"""``pybench gate`` on nights of a worker whose steps have the length that a test wants."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from pybench.cli.exit_codes import INCOMPARABLE
from pybench.cli.main import main
from tests.builders import NO_DRIVER
from tests.cli.conftest import write_drill

Drill = Callable[..., tuple[str, ...]]
Night = Callable[..., str]
NUM_NIGHTS = 10


def gate(run: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["gate", run, "--history", "nights", *arguments])


@pytest.fixture
def night(here: Path, drill: Drill, monkeypatch: pytest.MonkeyPatch) -> Night:
    """Make a real run; steps are longer by ``stretch`` at the points of ``where``."""

    def run(seed: int, root: str = "tonight", stretch: float = 1.0, where: str = "", *more: str, **changed: str) -> str:
        for variable, value in changed.items():
            monkeypatch.setenv(variable, value)
        arguments = drill(FAKE_STRETCH=str(stretch), FAKE_POINT=where, FAKE_NOISE=f"{seed}:0.003")
        done = CliRunner().invoke(main, [*arguments, "--runs", root, *more])
        assert done.exit_code in {0, 1, 4}, done.output
        return str(max((here / root).iterdir(), key=lambda path: path.stat().st_mtime_ns))

    return run


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Results of a real run."""
    folder = tmp_path_factory.mktemp("first")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(*NO_DRIVER)
        patch.chdir(folder)
        arguments = write_drill(folder, FAKE_NOISE="0:0.003")
        assert CliRunner().invoke(main, arguments).exit_code == 0
    (results,) = folder.glob("runs/*/results.json")
    return results.read_text()


@pytest.fixture
def nights(here: Path, first: str) -> Path:
    """Nights of one real run: its results again and again, with the date and 0.3 % of noise of each night."""
    folder = here / "nights"
    folder.mkdir()
    for day in range(1, NUM_NIGHTS + 1):
        found = json.loads(first)
        found["run_id"] = f"night {day}"
        found["provenance"]["created_utc"] = f"2026-10-{day:02}T03:00:00+00:00"
        for number, point in enumerate(found["points"]):
            factor = 1 + 0.003 * ((7 * day + 3 * number) % 5 - 2)
            for metric in point["metrics"].values():
                metric["medians"] = [value * factor for value in metric["medians"]]
        (folder / f"{day}.json").write_text(json.dumps(found))
    return folder


def test_a_night_like_the_others_passes(nights: Path, night: Night) -> None:
    """No row is flagged, and nothing is rerun."""
    done = gate(night(1))
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("drill: pass\n")
    assert "reruns" not in done.output


def test_a_planted_slowdown_is_found_and_confirmed_by_a_rerun(here: Path, nights: Path, night: Night) -> None:
    """3 % in the steps of one point. The rerun is in the run's own folder, and in no history."""
    run = night(1, "tonight", 1.03, "tensor_parallel=2")
    done = gate(run, "--python", str(here / "python"))
    assert done.exit_code == 1, done.output
    assert "TP 2   speed" in done.stdout
    assert "a rerun shows -" in done.stdout
    assert "TP 1" not in done.stdout
    assert len([*(Path(run) / "reruns").iterdir()]) == 1
    shutil.copytree(run, nights / "copied")
    listed = CliRunner().invoke(main, ["history", "nights"])
    assert f"{NUM_NIGHTS + 1} runs" in listed.stdout


def test_what_a_rerun_does_not_show_is_cleared(here: Path, nights: Path, night: Night, drill: Drill) -> None:
    """The worker is as fast as ever when its point is measured again."""
    run = night(1, "tonight", 1.03, "tensor_parallel=2")
    drill(FAKE_NOISE="2:0.003")
    done = gate(run, "--python", str(here / "python"), "-v")
    assert done.exit_code == 0, done.output
    assert "a rerun shows" in done.stdout


def test_a_rerun_with_another_python_is_none(nights: Path, night: Night) -> None:
    """The run's workers had a Python of their own: this one proves nothing, and the row stays flagged."""
    run = night(1, "tonight", 1.03, "tensor_parallel=2")
    done = gate(run)
    assert done.exit_code == 1, done.output
    assert not (Path(run) / "reruns").exists()
    assert "not confirmed:" in done.stdout
    assert "give that Python by --python" in " ".join(done.stdout.split())


def test_a_vanished_point_is_not_measured(nights: Path, night: Night) -> None:
    """Whether its worker broke or the plan has it no more."""
    gone = gate(night(1, "tonight", 1.0, "", "-k", "tensor_parallel=1"))
    assert gone.exit_code == 1
    assert "not measured: " in gone.stdout
    assert "memory): left out by -k tensor_parallel=1" in " ".join(gone.stdout.split())


def test_a_driver_a_variable_or_an_image_that_differs_is_named(here: Path, nights: Path, night: Night) -> None:
    """Until it is allowed; then the same night passes."""
    run = night(1, "tonight", 1.0, "", NCCL_ALGO="Ring")
    done = gate(run)
    assert done.exit_code == INCOMPARABLE
    assert done.stdout.startswith("drill: incomparable\n")
    assert "$NCCL_ALGO: none -> Ring (10)" in done.stdout
    assert gate(run, "--across", "environment").exit_code == 0
    results = json.loads((Path(run) / "results.json").read_text())
    for fields, name in (("machine_fields", "driver"), ("software_fields", "images"), ("machine_fields", "gpus")):
        changed = {**results, fields: {**results[fields], name: '["other"]'}}
        (here / "changed.json").write_text(json.dumps(changed))
        found = gate("changed.json", "--across", "environment")
        assert found.exit_code == INCOMPARABLE, name
        assert f"left out: nights that differ in {name.removesuffix('s')}: " in found.stdout


def test_ci_reads_the_night_in_four_formats(here: Path, nights: Path, night: Night) -> None:
    """A slower row is an annotation with its figures, a failed case, a line of the summary, and values."""
    run = night(1, "tonight", 1.03)
    files = [f"{name}=gate.{name}" for name in ("json", "junit", "markdown")]
    done = gate(run, *(word for file in files for word in ("-o", file)), "-o", "github-annotations=-")
    assert done.exit_code == 1
    assert re.search(r"^::error title=regressed%3A \S.*%25", done.stdout, re.MULTILINE)
    assert json.loads(Path("gate.json").read_text())["state"] == "regressed"
    assert "| regressed |" in Path("gate.markdown").read_text()
    assert ET.parse("gate.junit").getroot().findall(".//failure[@type='regressed']")


def test_other_steps_are_named_by_their_values(here: Path, nights: Path, night: Night) -> None:
    """And by the option that made them; the next step takes no other machine for history."""
    run = Path(night(1, "tonight", 1.0))
    results = json.loads((run / "results.json").read_text())
    for point in results["points"]:
        point["effort"]["steps"] += 1
        point["digest"] = "other"
    Path("other.json").write_text(json.dumps({**results, "options": ["--set steps=4"]}))
    done = gate("other.json")
    assert done.exit_code == INCOMPARABLE
    assert re.search(r"steps: \d+ -> \d+ \(--set steps=4\)", " ".join(done.stdout.split())), done.stdout
    assert "next: measure again without --set steps=4" in " ".join(done.stdout.split())


def test_an_accepted_change_begins_a_new_level(here: Path, nights: Path, night: Night) -> None:
    """Only the named row starts anew; without new nights it learns."""
    run = night(1, "tonight", 1.03, "tensor_parallel=2")
    (here / "accepted.toml").write_text(
        'schema = 1\n[[accepted]]\npoint = "decode[tensor_parallel=2]"\ndate = 2026-11-01\nreason = "a wider layer"\n'
    )
    done = gate(run)
    assert done.exit_code == 0, done.output
    assert "learning: " in done.stdout


def test_all_points_of_a_suite_are_accepted_at_once(here: Path, nights: Path, night: Night) -> None:
    """Only nights of this suite count; a run of another suite is named."""
    run = night(1, "tonight", 1.03)
    entry = 'date = 2026-11-01\nreason = "a new power supply"\n'
    (here / "accepted.toml").write_text(
        f'schema = 1\n[[accepted]]\nsuite = "drill"\n{entry}[[accepted]]\nsuite = "dril"\n{entry}'
    )
    done = gate(run)
    assert done.exit_code == 4, done.output
    assert done.stdout.startswith("drill: learning\n")
    named = " ".join(done.stdout.split())
    assert "not accepted: every point of dril: no run here is of such a suite; this one is of drill" in named
    assert "every point of drill:" not in named


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema = 1\n[[accepted]]\ndate = 2026-11-01\nreason = 'r'\n", "accepted[0]: names neither a point nor a"),
        ("schema = 1\n[[accepted]]\npoint = 'p'\ndate = 2026-11-01\n", "accepted[0].reason: missing"),
        ("schema = 1\n[[accepted]]\npoint = 'p'\nreason = 'r'\n", "accepted[0].date: missing"),
        ("schema = 1\n[[accepted]]\npoint = 'p'\nreason = ''\ndate = 2026-11-01\n", "accepted[0].reason: "),
        ("schema = 1\n[[accepted]]\npoint = 'p'\nreason = 'r'\ndate = 'soon'\n", "accepted[0].date: "),
        ("schema = 1\n[[accepted]]\npoint='p'\nreason='r'\ndate=2026-11-01\nmetric='tfs'\n", "'tfs' is no metric"),
        ("schema = 2\n", "schema: found 2, must be at most 1"),
        ("accepted = 1\n", "accepted: found 1, expected an array"),
        ("[[[", "not valid TOML"),
    ],
)
def test_a_bad_file_of_accepted_changes_is_refused(here: Path, nights: Path, text: str, message: str) -> None:
    """Where, and what is valid; nothing is judged."""
    (here / "accepted.toml").write_text(text)
    done = gate(str(nights / "1.json"))
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_history_that_cannot_be_read_is_no_learning(here: Path, nights: Path) -> None:
    """Skipped runs are named next to readable nights; without any readable night the exit code differs."""
    (nights / "cut.json").write_text("{")
    (nights / "link.json").symlink_to(nights / "1.json")
    done = gate(str(nights / f"{NUM_NIGHTS}.json"))
    assert done.exit_code == 0, done.output
    assert "skipped: link.json: a link" in done.stdout
    assert "skipped: cut.json: not a results.json" in done.stdout
    for number in range(1, NUM_NIGHTS + 1):
        (nights / f"{number}.json").rename(here / f"{number}.json")
    done = gate("1.json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "no run here" in done.stderr
    assert "skipped: cut.json: " in done.stderr


def test_a_history_that_is_empty_is_the_first_night(nights: Path) -> None:
    """And learns."""
    first = nights.with_name("first")
    first.mkdir()
    done = CliRunner().invoke(main, ["gate", str(nights / "1.json"), "--history", str(first)])
    assert (done.exit_code, done.stdout.splitlines()[0]) == (4, "drill: learning"), done.output


def test_a_clock_that_went_back_is_trouble_with_the_machine(here: Path, nights: Path) -> None:
    """Every night is later than tonight. A night of the folder that is judged again learns."""
    (nights / "1.json").rename(here / "1.json")
    done = gate("1.json")
    assert (done.exit_code, done.stdout) == (3, "")
    assert "is before that of all 9 runs of drill in nights: check the clock" in done.stderr
    done = gate("nights/2.json")
    assert done.exit_code == 4, done.output
    assert "8 nights later than this run" in done.stdout


def test_an_accepted_change_of_another_year_is_named(here: Path, nights: Path) -> None:
    """And is not applied."""
    (here / "accepted.toml").write_text(
        'schema = 1\n[[accepted]]\npoint = "decode[tensor_parallel=2]"\ndate = 2027-11-01\nreason = "a slip"\n'
    )
    done = gate(str(nights / f"{NUM_NIGHTS}.json"))
    assert done.exit_code == 0, done.output
    assert "not accepted: decode[tensor_parallel=2]: its date, 2027-11-01, is after" in " ".join(done.stdout.split())
    assert "learning" not in done.stdout
