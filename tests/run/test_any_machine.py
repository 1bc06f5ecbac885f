"""A suite of the main one's shape on fake drivers of 1, 2, 4 and 8 GPUs, with one engine not installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pybench.cli.exit_codes import BY_VERDICT
from pybench.model.manifest import PlanOptions
from pybench.model.progress import Progress
from pybench.model.results import Results
from pybench.run.prepare import prepare_run
from tests.run.fake_launcher import FakeLauncher

pytestmark = pytest.mark.usefixtures("fake_node")

SUITE = """
schema = 1
name = "any"
description = "1 to 8 GPUs, two backends"

[[benchmark]]
name = "decode"
workload = "generate"
model = "llama-3.1-8b"
batch_size = 1
prompt_tokens = 1
output_tokens = 2
attempts = 2
max_attempts = 2
steps = 3
{required}

[benchmark.axes]
backend = ["torch", "vllm"]
tensor_parallel = [1, 2, 4, 8]

[[benchmark.expect]]
metric = "output_tokens_per_s"
scaling = "strong"
along = "tensor_parallel"
table = "any"

[[benchmark.expect]]
metric = "output_tokens_per_s"
table = "any"
"""
KEYS = """machine = "any"
workload = "generate"
metric = "output_tokens_per_s"
kind = "measured"
source = "fake_worker"
"""
TABLE = 'schema = 1\nname = "any"\ndescription = "what the fake worker reaches"\n' + "".join(
    f"\n[[row]]\n{KEYS}count = {count}\nvalue = {count}.0\ntolerance = 0.1\n" for count in (2, 4, 8)
)
# One step of the fake worker on one rank lasts 10 ms: 2 tokens are 200 tokens/s.
FIGURE = f'\n[[row]]\n{KEYS}unit = "tokens/s"\ncount = 1\nvalue = 200.0\ntolerance = 0.1\n'


class WithoutVllm(FakeLauncher):
    """vLLM is not installed."""

    def missing(self, packages: Sequence[str]) -> tuple[str, ...]:
        return tuple(package for package in packages if package == "vllm")


@pytest.fixture
def run(tmp_path: Path, fake_nvml: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Results]:
    def measure(num_gpus: int, require: str | None = None, required: str = "", figure: str = FIGURE) -> Results:
        monkeypatch.chdir(tmp_path)
        fake_nvml(devices=num_gpus)
        Path("any.toml").write_text(SUITE.format(required=required))
        Path("expected").mkdir()
        Path("expected/any.toml").write_text(TABLE + figure)
        job = prepare_run(Path("any.toml"), Path("runs"), lambda _needs: WithoutVllm(), PlanOptions(require=require))
        return job.finish(Progress())

    return measure


@pytest.mark.parametrize(
    ("num_gpus", "ratios", "left_out", "last"),
    [
        (
            1,
            0,
            ["2 GPUs (1 here)", "4 GPUs (1 here)", "8 GPUs (1 here)"],
            "2 GPUs, 4 GPUs, 8 GPUs (1 here) (and 1 more)",
        ),
        (2, 1, ["4 GPUs (2 here)", "8 GPUs (2 here)"], "4 GPUs, 8 GPUs (2 here); vllm (not installed)"),
        (4, 2, ["8 GPUs (4 here)"], "8 GPUs (4 here); vllm (not installed)"),
        (8, 3, [], "vllm (not installed)"),
    ],
)
def test_what_could_run_passes(
    run: Callable[..., Results], num_gpus: int, ratios: int, left_out: list[str], last: str
) -> None:
    """The figure of one GPU, and each ratio; what is not here is named once, and decides nothing."""
    results = run(num_gpus)
    assert (results.verdict, BY_VERDICT[results.verdict]) == ("pass", 0), results.reason
    assert results.left_out == (*left_out, "vllm (not installed)")
    assert results.counts.passed == ratios + 1
    assert results.reason.endswith(f" left out: {last}")


def test_nothing_judged_is_no_pass(run: Callable[..., Results]) -> None:
    """One GPU without a figure of its own was measured, and shows nothing: exit code 4."""
    results = run(1, figure="")
    assert (results.verdict, BY_VERDICT[results.verdict]) == ("no_expectation", 4)
    assert results.reason.startswith("nothing was judged: 0 of ")


@pytest.mark.parametrize(
    ("require", "required", "reason"),
    [
        ("gpus=8", "", "needs 8 GPUs, found 2"),
        ("backend=vllm", "", "backend vllm needs vllm, not found here"),
        (None, "required = true", "needs 4 GPUs, found 2"),
    ],
)
def test_who_needs_it_gets_a_missing(
    run: Callable[..., Results], require: str | None, required: str, reason: str
) -> None:
    """By the command line or the suite."""
    results = run(2, require, required)
    assert (results.verdict, BY_VERDICT[results.verdict]) == ("missing", 1)
    assert any(reason in (point.reason or "") for point in results.points)
