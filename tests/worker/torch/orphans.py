"""Kill a run of real torch ranks at one moment, and print what is alive after a while: FOLDER MOMENT WHILE_S.

The moment is a number of seconds or a name of ``MOMENTS``. This process adopts whatever the run leaves, with its
environment or without.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.builders import NO_DRIVER, decode_benchmark
from tests.processes import wait_for

PR_SET_CHILD_SUBREAPER = 36
SUITE = """
schema = 1
name = "orphans"

{decode}
[benchmark.axes]
tensor_parallel = [2]
"""
NUM_RANKS = 2


def alive() -> dict[int, str]:
    """Command lines of all descendants that are no zombies."""
    found: dict[int, str] = {}
    parents = {os.getpid()}
    processes = {int(path.name): path for path in Path("/proc").iterdir() if path.name.isdigit()}
    fields = {pid: stat for pid, path in processes.items() if (stat := fields_of(path))}
    while parents:
        children = {pid for pid, (_, parent) in fields.items() if parent in parents}
        found |= {pid: command_line(pid) for pid in children if fields[pid][0] not in "ZX"}
        parents = children
    return found


def fields_of(path: Path) -> tuple[str, int] | None:
    """State and parent of a process, ``None`` once it is gone."""
    try:
        state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return state, int(parent)


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def is_prepared(folder: Path) -> bool:
    """Whether the run has its folder; no worker was started before."""
    return any(folder.glob("runs/*"))


def imports_torch(folder: Path) -> bool:
    """Whether a process has a library of torch."""
    return any("libtorch" in maps_of(pid) for pid in alive())


def measures(folder: Path) -> bool:
    """Whether every rank has reported a step."""
    reports = [path.read_text() for path in folder.glob("runs/*/attempts/*/exchange/events.*.jsonl")]
    return len(reports) == NUM_RANKS and all('"step"' in report for report in reports)


MOMENTS = {"prepared": is_prepared, "imports": imports_torch, "measures": measures}


def maps_of(pid: int) -> str:
    """Files in a process's memory."""
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return ""


def main(folder: Path, moment: str, while_s: float) -> None:
    """Print how many processes there were, and each that is left."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    decode = decode_benchmark(prompt_tokens=16, output_tokens=64, attempts=5, steps=200)
    (folder / "orphans.toml").write_text(SUITE.format(decode=decode))
    environment = {**os.environ, **dict([NO_DRIVER]), "PYBENCH_LOCKS": str(folder / "locks")}
    command = (sys.executable, "-c", "from pybench.cli.main import main; main()", "run", "orphans.toml")
    log = (folder / "log").open("wb")
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log) as run:
        if has_come := MOMENTS.get(moment):
            wait_for(lambda: has_come(folder) or run.poll() is not None)
        else:
            time.sleep(float(moment))
        before = alive()
        ended = run.poll()
        run.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + while_s
        while (left := alive()) and time.monotonic() < deadline:
            time.sleep(0.02)
    print(len(before), "ended" if ended is not None else "killed", *left.values(), sep="\n")
    for pid in left:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
