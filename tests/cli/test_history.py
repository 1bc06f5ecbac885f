"""``pybench history`` over real run folders."""

from __future__ import annotations

import csv
import io
import shutil
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner, Result

from pybench.cli.main import main
from pybench.files.run.folder import RunFolder
from pybench.model.manifest import PartOf


def history(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["history", *arguments])


def copy_run(run: Path, name: str, part_of: PartOf | None = None) -> None:
    """Another run beside it, with the same figures."""
    copied = run.with_name(name)
    shutil.copytree(run, copied)
    folder = RunFolder.open(copied)
    folder.write_manifest(replace(folder.read_manifest(), part_of=part_of, run_id=name))


def test_runs_are_shown_and_what_is_none_is_named(here: Path, finished: Path) -> None:
    """Two runs; a folder that was begun; a file of something else."""
    copy_run(finished, "again")
    (here / "runs" / "begun").mkdir()
    (here / "runs" / "begun" / "manifest.json").write_text("{")
    (here / "runs" / "notes.json").write_text("[]")
    done = history("runs")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("drill: 2 runs, ")
    assert "skipped: begun:" in done.stdout
    assert "skipped: notes.json:" in done.stdout
    assert "TP 2   speed" in done.stdout
    table = [*csv.DictReader(io.StringIO(history("runs", "--csv").stdout))]
    assert {(row["point"], row["num_attempts"]) for row in table if row["metric"] == "output_tokens_per_s"} == {
        ("decode[tensor_parallel=1]", "2"),
        ("decode[tensor_parallel=2]", "2"),
    }


def test_a_page_is_written_besides(here: Path, finished: Path) -> None:
    """With the trend of every row."""
    done = history("runs", "--html", "page.html")
    assert (done.exit_code, done.stdout.startswith("drill: 1 run, ")) == (0, True), done.output
    page = (here / "page.html").read_bytes()
    assert b"TP 2: speed" in page
    assert done.stdout.endswith(f"\npage.html: {len(page):,} bytes\n")
    assert "page.html" not in history("runs", "--html", "page.html", "--csv").stdout
    alone = history("runs", "--accepted", "accepted.toml")
    assert (alone.exit_code, "--accepted is for --html: give both, or neither" in alone.stderr) == (2, True)


def test_an_empty_folder_and_an_unknown_suite_are_refused(here: Path, finished: Path) -> None:
    """With what there is."""
    (here / "empty").mkdir()
    done = history("empty")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "no run here; give the folder of `pybench run --runs`" in done.stderr
    done = history("runs", "--suite", "nope")
    assert done.exit_code == 2
    assert "no run of nope; there are drill" in done.stderr
    assert history("absent").exit_code == 2


def test_runs_of_several_are_no_nights(finished: Path) -> None:
    """Neither the gate nor the history takes them in; the history counts them, and CSV has the field."""
    several: tuple[PartOf | None, ...] = ("aa", "aa", "ab", None)
    for number, part_of in enumerate(several):
        copy_run(finished, f"{part_of}-{number}", part_of)
    done = history("runs")
    assert done.stdout.startswith("drill: 2 runs, "), done.output
    assert "left out: 2 of --aa and 1 of --ab, which are no nights" in done.stdout
    done = CliRunner().invoke(main, ["gate", str(finished), "--history", "runs", "--no-rerun"])
    assert "against 0 nights before it" in done.stdout, done.output
    table = csv.DictReader(io.StringIO(history("runs", "--csv").stdout))
    assert {row["part_of"] for row in table} == {"", "aa", "ab"}
    shutil.rmtree(finished)
    shutil.rmtree(finished.with_name("None-3"))
    done = history("runs")
    assert "2 runs, " in done.stdout
    assert "runs of --aa, taken within hours; nights differ by more" in done.stdout
    assert "left out: 1 of --ab, which are no nights" in done.stdout
    for number in range(2):
        shutil.rmtree(finished.with_name(f"aa-{number}"))
    assert "1 run of --ab, which is no night; run the suite without these" in history("runs").stderr
