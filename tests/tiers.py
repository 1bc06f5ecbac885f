"""Tiers of tests, by folder or module: what a test may cost, and that a pure test starts no process."""

from __future__ import annotations

import multiprocessing.process
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
# Modules in folders of the tier process whose tests make whole runs.
_RUNS_BY_COMMAND = (
    *("ci", "compare", "disk_full", "encodings", "exit_codes", "expect", "gate", "provenance", "run", "run_several"),
    *("run_folder_gone", "secrets", "system_call_faults", "two_runs"),
)
_RUNS_BY_RUNNER = (
    "any_machine",
    "engine_drills",
    "hosts",
    "hosts_images",
    "node_drill",
    "rerun",
    "run",
    "server",
    "sessions",
    "time_limit",
)
TIERS: dict[str, tuple[str, ...]] = {
    "pure": ("core", "explain", "files", "fleet", "model", "nightly", "power", "report", "suites"),
    "source": (".",),
    "process": ("cli", "evidence", "machine", "power/recording", "run", "test_products_are_removable.py", "worker"),
    "simulated": (
        "core/test_verdict_errors.py",
        "nightly/test_change.py",
        "nightly/test_second_speed.py",
        "power/test_in_step.py",
        "power/test_sensor_fit.py",
    ),
    "runs": (
        *(f"cli/test_{name}.py" for name in _RUNS_BY_COMMAND),
        *(f"run/test_{name}.py" for name in _RUNS_BY_RUNNER),
    ),
    "torch": (
        *("benchmarks/test_matmul_overhead.py", "benchmarks/test_split_layers.py", "power/recording/test_calibrate.py"),
        *(f"whole/test_{name}.py" for name in ("document_commands", "preflight", "quick_check", "train_runs")),
        *("run/test_server.py", "slurm/test_slurm.py", "worker/test_server.py", "worker/test_vllm.py", "worker/torch"),
    ),
    "native": ("native",),
    "whole": ("benchmarks", "containers", "report/browser", "slurm", "whole"),
}
"""Folders and modules below ``tests``; what is not named here has the tier of the folder that it is in."""
TIME_LIMITS_S = dict.fromkeys(("pure", "source", "process", "simulated"), 120)
"""Of a test, where it is shorter than the ``timeout`` of pyproject.toml."""

_TIER_OF = {Path(place): tier for tier, places in TIERS.items() for place in places}
_STARTS = frozenset(
    ("subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "pty.spawn")
)
_forbidden: list[str] = []


@cache
def tier_of(path: Path) -> str:
    """The tier of a test module; a new folder must be added."""
    module = path.relative_to(HERE)
    folder = module.parent
    if folder.parts and Path(folder.parts[0]) not in _TIER_OF:
        raise pytest.UsageError(f"tests/{folder}: no tier; add the folder to TIERS in tests/tiers.py")
    return next(_TIER_OF[place] for place in (module, *module.parents) if place in _TIER_OF)


def left_out(path: Path, expression: str) -> bool:
    """Whether ``-m expression`` can't want a module: it is spared the import, which takes seconds for torch.

    Only a choice of whole tiers is understood: ``pure or source``, ``not pure``.
    """
    words = expression.split()
    if not words or set(words) - {*TIERS, "or", "not"} or words.count("not") > (words[0] == "not"):
        return False
    if words[0] == "not":
        return len(words) == len(("not", "tier")) and tier_of(path) == words[1]
    return tier_of(path) not in words


@contextmanager
def no_process(test: str) -> Iterator[None]:
    """Within it, a test that starts a process fails, also where an ``except Exception`` stands around."""
    _forbidden.append(test)
    try:
        yield
    finally:
        _forbidden.remove(test)


def _refuse(event: str) -> None:
    if _forbidden:
        test = _forbidden[-1]
        message = f"{test} is pure and must not start a process ({event}); move it to a folder of another tier"
        pytest.fail(message, pytrace=False)


def _audit(event: str, _arguments: tuple[Any, ...]) -> None:
    if event in _STARTS:
        _refuse(event)


def watch_processes() -> None:
    """Have every start of a process noticed; once for each Python, whose audit hooks stay."""
    sys.addaudithook(_audit)
    base = multiprocessing.process.BaseProcess
    start = base.start  # two of its three methods raise no audit event

    def watched(self: multiprocessing.process.BaseProcess) -> None:
        _refuse("multiprocessing")
        start(self)

    setattr(base, start.__name__, watched)
