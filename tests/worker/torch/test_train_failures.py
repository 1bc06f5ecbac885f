"""Ranks that break in mid-training: each point's cause is recorded, nothing stays behind, the suite goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from pybench.model.record import Record
from pybench.run.loop import Run
from tests.worker.torch.broken_worker import failure_of, measure_broken

# Four real starts, and one that costs its whole time limit.
pytestmark = pytest.mark.timeout(1200)

_BENCHMARK = """
[[benchmark]]
name = "{name}"
workload = "train"
backend = "torch"
model = "llama-tiny"
dtype = "float32"
data_parallel = 2
global_batch_size = 4
learning_rate = 0.01
sequence_tokens = 8
attempts = 1
max_attempts = 1
steps = 3
max_warmup_steps = 3
time_limit_s = {limit_s}
"""
# Appended to the staged worker: rank 1 breaks before the second step's exchange, while rank 0 waits for it.
_DRILL = """

import os, signal, time

_train = Training.train
_steps = []


def _break(self):
    _steps.append(1)
    drill = _NAMES[self.task.settings.seed]
    if self.task.ranks.rank == 1 and len(_steps) == 2:
        if drill == "out_of_memory":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        if drill == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        while drill == "hanging":
            time.sleep(1)
    return _train(self)


Training.train = _break

from pybench.worker.backends.torch.train.strategies import ddp

_replicated = ddp.replicated


def _alone(task, model, group=None):
    return model if task.settings.bucket_cap_mb == 1 else _replicated(task, model, group)


ddp.replicated = _alone
"""
# As fast as can be, and wrong: its copies exchange nothing. It trains what the healthy one does.
_WRONG = _BENCHMARK.format(name="fast_but_wrong", limit_s=280) + "seed = 3\nbucket_cap_mb = 1\n"
# Longer than the delay between ranks of a loaded machine, and short enough for a test.
_PATIENCE = {"hanging": "collective_timeout_s = 20\n"}
DRILLS = ("out_of_memory", "killed", "hanging", "healthy")


@pytest.fixture(scope="module")
def drilled(tmp_path_factory: pytest.TempPathFactory, warm_python: Path) -> Run:
    """One run of all drills; afterwards no process of it is left."""
    parts = [_BENCHMARK.format(name=name, limit_s=280) for name in DRILLS]
    seeded = [f"{part}seed = {number}\n{_PATIENCE.get(DRILLS[number], '')}" for number, part in enumerate(parts)]
    source = _DRILL.replace("_NAMES", repr(DRILLS))
    module = "pybench/worker/backends/torch/train/training.py"
    return measure_broken(warm_python, tmp_path_factory.mktemp("drills"), [*seeded, _WRONG], module, source)


@pytest.fixture
def records(drilled: Run) -> dict[str, Record]:
    """By the drill's name."""
    return {record.point_id: record for record in drilled.folder.journal.records()}


@pytest.mark.parametrize(
    ("drill", "cause", "message"),
    [
        ("out_of_memory", "out_of_memory", "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
        ("killed", "signal", "a rank was ended by signal 9"),
        ("hanging", "collective_timeout", "broadcast, operation "),
    ],
)
def test_the_cause_is_the_broken_ranks(drilled: Run, drill: str, cause: str, message: str) -> None:
    """Not what its siblings noticed: that a peer is gone."""
    failure = failure_of(drilled, drill)
    assert failure.cause == cause
    assert failure.message.startswith(message)


def read_stack_of(drilled: Run, rank: int) -> str:
    """The place of a rank in the hanging drill, by its own event."""
    (path,) = drilled.folder.path.glob(f"attempts/hanging.1/exchange/events.{rank}.jsonl")
    detail: str = json.loads(path.read_text().splitlines()[-1])["error"]["detail"]
    return detail


def test_a_hanging_collective_is_named(drilled: Run, records: dict[str, Record]) -> None:
    """The operation, who waits in it, who did not come and where that one is: its loop is the innermost line.

    The model's buffers are broadcast before a step's forward pass.
    """
    failure = records["hanging"].failure
    assert failure is not None
    device = records["healthy"].ranks[0].header.device_name
    entered, _, absent = failure.message.partition(", not by ")
    assert entered.endswith(f" of default_pg, in warm-up step 1: entered by rank 0 ({device})")
    assert absent.startswith(f"rank 1 ({device}) within 20 s (rank 1 is in warm-up step 1, last entered all_reduce")
    assert "time.sleep(1)" in read_stack_of(drilled, rank=1)


def test_the_suite_goes_on(records: dict[str, Record]) -> None:
    """The next point is measured, and its losses kept from the first warm-up step on."""
    healthy = records["healthy"]
    assert healthy.ok
    assert [len(rank.losses) for rank in healthy.ranks] == [healthy.ranks[0].warmup_steps + 3] * 2
    assert healthy.ranks[0].losses == healthy.ranks[1].losses


def test_a_wrong_but_fast_strategy_fails_the_run(drilled: Run, records: dict[str, Record]) -> None:
    """It was measured without any complaint; its losses give it away."""
    assert records["fast_but_wrong"].ok
    results = drilled.results()
    (check,) = results.checks
    assert (check.point_id, check.metric, check.verdict) == ("fast_but_wrong", "loss_deviation", "fail")
    assert results.verdict == "fail"
    assert results.reason.startswith("fast_but_wrong: loss_deviation: loss ")
