"""``pybench run`` over several hosts: by a rendezvous, in a Slurm allocation, and by ``--sbatch``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pybench.cli.io import echo

if TYPE_CHECKING:
    from pybench.run.engines.base import EngineOptions, Launcher
    from pybench.run.hosts.gathering import Gathering
    from pybench.run.slurm import Task

_SBATCH = "--sbatch"


@dataclass(frozen=True, kw_only=True)
class HostOptions:
    """The command line's part, of a run over several hosts."""

    rendezvous: str | None = None
    nodes: int | None = None
    node_rank: int | None = None
    join_limit_s: float | None = None

    def of_task(self, task: Task | None) -> HostOptions:
        """The options of a task that Slurm started; missing ones follow from its step."""
        if task is None:
            return self
        meet = self.rendezvous or f"{task.address}:{task.port}"
        return replace(self, rendezvous=meet, nodes=task.num_nodes, node_rank=task.node_rank)

    @property
    def given(self) -> bool:
        """Whether the run is over several hosts. Raises ``UsageError`` for options that lack others."""
        from pybench.model.errors import UsageError

        together = {self.rendezvous is None, self.nodes is None}
        if len(together) > 1 or (self.rendezvous is None and (self.node_rank, self.join_limit_s) != (None, None)):
            raise UsageError(
                "--rendezvous HOST:PORT and --nodes N go together, as --node-rank and --join-limit do with them"
            )
        return self.rendezvous is not None


def engine_over_hosts(engine: EngineOptions) -> EngineOptions:
    """The options with an engine that all hosts share: none unless one is named. Raises ``UsageError``."""
    from pybench.model.errors import UsageError
    from pybench.run.engines import CONTAINER_ENGINES, LOCAL

    chosen = replace(engine, engine=LOCAL) if engine.engine == "auto" else engine
    if engine.image and chosen.engine == LOCAL:
        raise UsageError(
            f"--image {engine.image}: name the engine that all hosts have: --engine {' or '.join(CONTAINER_ENGINES)}"
        )
    return chosen


@contextmanager
def gathered(options: HostOptions, engine: EngineOptions, notify: Callable[[str], None]) -> Iterator[Gathering | None]:
    """Lead the hosts of a run, release them at its end; ``None`` without any, and where this one took part."""
    gathering = _gather_or_serve(options, engine, notify) if options.given else None
    problem = "the host that leads failed"
    try:
        yield gathering
        problem = ""
    except KeyboardInterrupt:
        problem = "the run was interrupted on the host that leads"
        raise
    except Exception as error:
        problem = f"the host that leads ended the run: {error}"
        raise
    finally:
        if gathering is not None:
            gathering.dismiss(problem)


def _gather_or_serve(options: HostOptions, engine: EngineOptions, notify: Callable[[str], None]) -> Gathering | None:
    from pybench.machine.disk import scratch_folder
    from pybench.machine.signals import signals_interrupt
    from pybench.run.engines import LOCAL
    from pybench.run.engines.choice import choose_launcher
    from pybench.run.hosts.gathering import gather
    from pybench.run.hosts.rendezvous import JOIN_LIMIT_S, Rendezvous, host_name, read_secret, this_host
    from pybench.run.serve import NodeRunner

    limit_s = options.join_limit_s or JOIN_LIMIT_S
    meet = Rendezvous.parse(options.rendezvous or "", options.nodes or 0, options.node_rank, limit_s)
    secret, name = read_secret(os.environ), host_name(os.environ)
    local = _local(engine, notify) if engine.engine == LOCAL else None
    host = this_host(name, engine.engine, local, alone=meet.is_on_loopback)
    listener = meet.listener()
    if listener is not None:
        notify(f"host {name} leads; waiting at {meet} for {meet.num_nodes - 1} more")
        return gather(meet, listener, host, secret, notify)
    choose = partial(choose_launcher, engine, notify=notify)
    with signals_interrupt(), scratch_folder("pybench-node-") as folder:
        NodeRunner(host, meet.joined(secret), choose, folder, notify, meet.limit_s).serve()
    return None


def _local(engine: EngineOptions, notify: Callable[[str], None]) -> Launcher:
    from pybench.model.container import ContainerRequest
    from pybench.run.engines.base import LaunchRequirements
    from pybench.run.engines.choice import choose_launcher

    needs = LaunchRequirements(backends=(), device="cpu", request=ContainerRequest())
    return choose_launcher(engine, needs, notify)


def over_allocation(root: Path, num_nodes: int | None) -> int | None:
    """Run this command on each node of the allocation; gives the exit code, ``None`` without allocation."""
    from pybench.run.slurm import Allocation, run_step

    allocation = Allocation.of(os.environ)
    if allocation is None:
        return None
    return run_step(allocation.srun(_command(sys.argv), num_nodes), root, os.environ, lambda line: echo(line, err=True))


def submit_batch(root: Path, options: Sequence[str]) -> None:
    """Submit a script that runs this command, without its ``--sbatch``. Raises ``MachineError``."""
    from datetime import UTC, datetime

    from pybench.run.slurm import batch_script, submit

    words = sys.argv[: sys.argv.index("--")] if "--" in sys.argv else sys.argv
    command = [word for word in _command(words) if word != _SBATCH]
    root.mkdir(parents=True, exist_ok=True)
    script = root / f"sbatch-{datetime.now(UTC):%Y%m%dT%H%M%S%f}.sh"
    script.write_text(batch_script(command, Path.cwd()), encoding="utf-8")
    output = root.resolve() / "slurm-%j.out"
    job = submit(script, (f"--output={output}", *options))
    echo(f"job {job} is submitted: {script}")
    echo(f"its output: {str(output).replace('%j', job)}")


def _command(words: Sequence[str]) -> tuple[str, ...]:
    return (str(Path(words[0]).absolute()), *words[1:])


@contextmanager
def verdict_left() -> Iterator[None]:
    """Where this is a task that :func:`over_allocation` started: leave the exit code in a file."""
    from pybench.cli.exit_codes import INTERNAL, INTERRUPTED, exit_code_of
    from pybench.model.errors import PybenchError
    from pybench.run.slurm import STEP_VARIABLE, write_verdict

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
