"""Run what is still without a figure: the commands of ``docs/results/README.md``, in its order, in the time there is.

::

    python docs/campaign.py runs --limit 9m            what this machine's GPUs can run and 9 minutes hold
    python docs/campaign.py runs --limit 9m --dry-run  print it

Each command has its folder below ``runs``, with its log. A command that was begun is finished, an ended command is
not run again, and the next call continues with the rest.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from pybench.cli.params import Duration
from pybench.machine.environment import snapshot
from pybench.model.manifest import duration_text
from pybench.report.run.view import RunView

PLAN = Path(__file__).parent / "results" / "README.md"
LOG, ENDED = "log.txt", "ended"
_ROW = re.compile(r"^\| `pybench (run [^`]+)` \| (\d+)(?: (\S+))? \| (\d+) \|", re.MULTILINE)
_NO_NAME = re.compile(r"[^\w=]+")
_INTERRUPTED = {130, -signal.SIGINT, -signal.SIGTERM}


class Planned(NamedTuple):
    """A command, without the program, the GPUs it is for, and what it takes there; without a ``kind``, any GPUs."""

    words: tuple[str, ...]
    num_gpus: int
    kind: str | None
    minutes: int

    @property
    def folder(self) -> str:
        """Its folder's name."""
        return _NO_NAME.sub("-", " ".join(self.words[1:]))


def planned(text: str) -> tuple[Planned, ...]:
    """The rows of a document's table."""
    return tuple(Planned(tuple(shlex.split(row[1])), int(row[2]), row[3], int(row[4])) for row in _ROW.finditer(text))


def for_kind(rows: Sequence[Planned], kind: str | None) -> tuple[Planned, ...]:
    """Those for GPUs of this kind; all where it is not known."""
    return tuple(row for row in rows if kind is None or row.kind in {None, kind})


def chosen(rows: Sequence[Planned], runs: Path, num_gpus: int, left_s: float) -> Planned | None:
    """The first that has not ended, needs no more GPUs than are here and fits the time."""
    fitting = (row for row in rows if row.num_gpus <= num_gpus and 60 * row.minutes <= left_s)
    return next((row for row in fitting if not (runs / row.folder / ENDED).exists()), None)


def command(row: Planned, folder: Path, left_s: float) -> tuple[str, ...]:
    """The command line of a row; of one that was begun, what finishes its newest run."""
    begun = sorted(path.parent for path in folder.glob("*/manifest.json"))
    if begun and "--aa" not in row.words:
        return "run", "--resume", str(begun[-1])
    return *row.words, "--runs", str(folder), "--time-limit", duration_text(left_s)


def run(row: Planned, folder: Path, left_s: float) -> int:
    """Run it; returns its exit code. Its output goes to its log.

    One that measured nothing, was interrupted or left a point without any attempt has not ended.
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = (sys.executable, "-P", "-c", "from pybench.cli.main import main; main(prog_name='pybench')")
    with (folder / LOG).open("a") as log:
        code = subprocess.run((*program, *command(row, folder, left_s)), stdout=log, stderr=log, check=False).returncode
    points = [point for path in folder.glob("*/results.json") for point in RunView.of_file(path).results.points]
    if code not in _INTERRUPTED and points and all(point.status != "missing" for point in points):
        (folder / ENDED).write_text(f"{code}\n")
    return code


def campaign(
    rows: Sequence[Planned], runs: Path, num_gpus: int, left_s: float, start: Callable[[Planned, float], float]
) -> None:
    """Start row after row until none fits what is left of the time; ``start`` returns the seconds that one took."""
    remaining = list(rows)
    while (row := chosen(remaining, runs, num_gpus, left_s)) is not None:
        remaining.remove(row)
        left_s -= start(row, left_s)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("runs", type=click.Path(path_type=Path, file_okay=False))
@click.option("--limit", "limit_s", type=Duration(), required=True, help="Time for all of it.")
@click.option("--gpu", "kind", metavar="KIND", help="Kind of the GPUs, such as h200; default: the kind here.")
@click.option("--gpus", "num_gpus", type=click.IntRange(min=1), help="GPUs to use; default: those here.")
@click.option("--dry-run", is_flag=True, help="Print the commands, and run none.")
def main(runs: Path, limit_s: float, kind: str | None, num_gpus: int | None, *, dry_run: bool) -> None:
    """Run the plan of docs/results/README.md."""
    machine = snapshot()
    rows = for_kind(planned(PLAN.read_text(encoding="utf-8")), kind or (machine.kind if machine.gpus else None))
    here = len(machine.gpus) if num_gpus is None else num_gpus
    if not here:
        raise click.UsageError("there is no GPU here; --gpus N --dry-run prints what N would run")

    def show(row: Planned, left_s: float) -> float:
        click.echo(f"{row.minutes:3} min  pybench {shlex.join(command(row, runs / row.folder, left_s))}")
        return 60.0 * row.minutes

    def measure(row: Planned, left_s: float) -> float:
        began_s = time.monotonic()
        code = run(row, runs / row.folder, left_s)
        took_s = time.monotonic() - began_s
        click.echo(f"{took_s:5.0f} s  exit {code}  pybench {shlex.join(row.words)}")
        return took_s

    campaign(rows, runs, here, limit_s, show if dry_run else measure)


if __name__ == "__main__":
    main()
