"""``pybench run`` under Slurm: in an allocation of several nodes, as one of its tasks, and by ``--sbatch``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import click

_SBATCH = "--sbatch"


def over_allocation(root: Path, num_nodes: int | None) -> int | None:
    """Run this command once on each node of the allocation, and give the verdict's exit code; ``None`` without one.

    Raises ``UsageError`` or ``MachineError``, and ``KeyboardInterrupt`` with nothing left running.
    """
    from pybench.run.slurm.allocation import Allocation
    from pybench.run.slurm.step import run_step

    allocation = Allocation.of(os.environ)
    if allocation is None:
        return None
    return run_step(
        allocation.srun(_command(sys.argv), num_nodes), root, os.environ, lambda line: click.echo(line, err=True)
    )


def submit_batch(root: Path, options: Sequence[str]) -> None:
    """Submit a script that runs this command, without its ``--sbatch``. Raises ``MachineError``."""
    from datetime import UTC, datetime

    from pybench.run.slurm.batch import batch_script, submit

    words = sys.argv[: sys.argv.index("--")] if "--" in sys.argv else sys.argv
    command = [word for word in _command(words) if word != _SBATCH]
    root.mkdir(parents=True, exist_ok=True)
    script = root / f"sbatch-{datetime.now(UTC):%Y%m%dT%H%M%S%f}.sh"
    script.write_text(batch_script(command, Path.cwd()), encoding="utf-8")
    output = root.resolve() / "slurm-%j.out"
    job = submit(script, (f"--output={output}", *options))
    click.echo(f"job {job} is submitted: {script}")
    click.echo(f"its output: {str(output).replace('%j', job)}")


def _command(words: Sequence[str]) -> tuple[str, ...]:
    return (str(Path(words[0]).absolute()), *words[1:])


@contextmanager
def verdict_left() -> Iterator[None]:
    """Where this is a task that :func:`over_allocation` started: leave the exit code in a file."""
    from pybench.cli.exit_codes import INTERNAL, INTERRUPTED, exit_code_of
    from pybench.model.errors import PybenchError
    from pybench.run.slurm.allocation import STEP_VARIABLE
    from pybench.run.slurm.verdict_file import write_verdict

    code = INTERNAL
    try:
        yield
    except click.exceptions.Exit as end:
        code = end.exit_code
        raise
    except PybenchError as error:
        code = exit_code_of(error)
        raise
    except KeyboardInterrupt:
        code = INTERRUPTED
        raise
    finally:
        if (folder := os.environ.get(STEP_VARIABLE)) is not None:
            with suppress(OSError):  # no shared folder: the command that started the step reports that
                write_verdict(Path(folder), int(os.environ.get("SLURM_NODEID", "0")), os.uname().nodename, code)
