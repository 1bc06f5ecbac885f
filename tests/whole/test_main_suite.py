"""The shipped ``tp_scaling`` through the command, on fake drivers of 1, 2, 4 and 8 GPUs.

Only the figures are stand-ins: the worker's steps have the lengths that the expected tables imply, a tenth of them, and
the driver's boards the watts. Everything else is what a user runs.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pybench.cli.main import main
from pybench.model.backend import BACKENDS
from pybench.model.workloads.settings import BackendName
from tests.programs import FAKE_WORKER, shell_program

pytestmark = pytest.mark.usefixtures("fake_node")

# 64 sequences of 128 tokens at 3,680 tokens/s last 2,226 ms, 256 at 6,880 last 4,763; speedups 1.3, 1.6; 1.67, 2.53.
STEPS_MS = {
    "torch": {"1": 222.6, "2": 171.2, "4": 139.1, "8": 120.0},
    "transformers": {"1": 358.5, "2": 360.0},
    "vllm": {"1": 476.3, "2": 285.2, "4": 188.3, "8": 150.0},
}
# Together 1.7 times one board's at two GPUs and 2.5 times at four, so that a token needs 1.31 and 1.58 times as much.
LOADS = "constant:430;constant:300;constant:180;constant:180"


@pytest.fixture
def run(tmp_path: Path, fake_nvml: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """``pybench run tp_scaling`` with so many GPUs of a name, and a Python that has these backends."""

    def measure(num_gpus: int, backends: Sequence[BackendName], *options: str, name: str = "NVIDIA H200") -> Result:
        monkeypatch.chdir(tmp_path)
        fake_nvml(devices=num_gpus, load=LOADS, name=name)
        for package in {package for backend in backends for package in BACKENDS[backend].packages}:
            (tmp_path / "packages" / package).mkdir(parents=True)
        # The launcher says: python -I -B worker/__main__.py --starter FD, and to look for packages: -I -B -c.
        python = shell_program(
            tmp_path / "python",
            "shift 2\n"
            f'[ "$1" = -c ] && PYTHONPATH={tmp_path}/packages exec {sys.executable} -S -B "$@"\n'
            f"shift\nexport PYTHONPATH={os.pathsep.join(sys.path)} FAKE_BEHAVIOUR=ok\n"
            f"export FAKE_STEPS_MS='{json.dumps(STEPS_MS)}'\n"
            f'exec {sys.executable} -S {FAKE_WORKER} "$@"',
        )
        return CliRunner().invoke(main, ["run", "tp_scaling", "--python", str(python), *options])

    return measure


def last_line(result: Result) -> str:
    """The verdict's own without its line ends, above the line that names the folder."""
    verdict, _, folder = result.stdout.rpartition("\n\n")[2].partition("\nrun folder: ")
    assert folder.count("\n") == 1
    return " ".join(verdict.split())


@pytest.mark.parametrize(
    ("num_gpus", "backends", "judged", "left_out"),
    [
        (
            1,
            ["torch"],
            "2 of 18 expectations judged; 16 left out",
            "2 GPUs, 4 GPUs (1 here); transformers (not installed) (and 2 more)",
        ),
        (
            2,
            ["torch", "transformers"],
            "6 of 20 expectations judged; 2 have no row for h200; 12 left out",
            "4 GPUs (2 here); vllm, tensorrt_llm (not installed)",
        ),
        (
            4,
            ["torch"],
            "6 of 18 expectations judged; 12 left out",
            "transformers, vllm, tensorrt_llm (not installed)",
        ),
        (
            8,
            ["torch", "vllm"],
            "12 of 28 expectations judged; 4 have no row for h200; 12 left out",
            "transformers, tensorrt_llm (not installed)",
        ),
    ],
)
def test_what_could_run_passes(
    run: Callable[..., Result], num_gpus: int, backends: list[BackendName], judged: str, left_out: str
) -> None:
    """Every absent backend is named once, and decides nothing; points without a row (8 GPUs) decide nothing either.

    On four GPUs with as many attempts as the suite has, on others with two, which are enough for a pass. Where a loaded
    machine delays a reading of the counter, more attempts follow.
    """
    result = run(num_gpus, backends, *(() if num_gpus == 4 else ("--set", "attempts=2")))
    expected = f"verdict: pass - {judged}: {left_out}"
    assert (last_line(result), result.exit_code) == (expected, 0)


def test_a_gpu_without_any_row_judges_nothing(run: Callable[..., Result]) -> None:
    """It is measured all the same, and that is no pass: exit code 4."""
    result = run(2, ["torch"], "--attempts", "1", name="NVIDIA Z1")
    assert last_line(result).startswith("verdict: no expectation - nothing was judged: 0 of ")
    assert "have no row for unknown-nvidia-z1" in last_line(result)
    assert "TP 2" in result.stdout
    assert result.exit_code == 4


def test_who_requires_an_engine_gets_a_missing(run: Callable[..., Result]) -> None:
    """What could run was measured; exit code 1."""
    result = run(1, ["torch"], "--require", "backend=vllm", "--attempts", "1")
    assert last_line(result).startswith("verdict: missing - ")
    assert "backend vllm needs vllm" in last_line(result)
    assert result.exit_code == 1
