"""An engine's build of a Dockerfile."""

from __future__ import annotations

import subprocess
import tempfile
from collections import deque
from pathlib import Path

from pybench.machine.command import guarded_argv
from pybench.model.container import EngineFacts
from pybench.run.engines.base import Notify
from pybench.run.engines.error import engine_error
from pybench.run.engines.oci.confinement import Confinement, after_refusal
from pybench.run.engines.oci.images import with_algorithm

_TAIL_LINES = 10


def build_dockerfile(facts: EngineFacts, folder: Path, tag: str, notify: Notify) -> str:
    """Build the Dockerfile of ``folder`` under ``tag`` and return the image's id. Raises ``MachineError``."""
    with tempfile.TemporaryDirectory(prefix="pybench-") as scratch:
        file = Path(scratch) / "id"
        _build(facts, ("build", "--force-rm", "--iidfile", str(file), "--tag", tag, str(folder)), notify)
        return with_algorithm(file.read_text(encoding="utf-8").strip())


def _build(facts: EngineFacts, command: tuple[str, ...], notify: Notify) -> None:
    """Run ``command``; an engine that refuses its runtime or cgroup manager here is given another, as for workers."""
    confinement = Confinement()
    while words := _complaint((facts.name, *confinement.engine_options, *command), notify):
        relaxed = after_refusal(confinement, "\n".join(words), {}, facts)
        if relaxed is None or relaxed.engine_options == confinement.engine_options:
            raise engine_error(facts.name, facts.data_root, f"can't build {command[-1]}", words[-1])
        confinement = relaxed
        notify(f"{facts.name}: again with {' '.join(confinement.engine_options)}")


def _complaint(argv: tuple[str, ...], notify: Notify) -> list[str]:
    """The last lines of a command that failed; none when it succeeded."""
    tail: deque[str] = deque(["no output"], maxlen=_TAIL_LINES)
    pipe = subprocess.PIPE
    with subprocess.Popen(
        guarded_argv(argv), stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        for line in process.stdout or ():
            notify(line.rstrip())
            tail.extend([line.strip()] if line.strip() else [])
    return list(tail) if process.returncode else []
