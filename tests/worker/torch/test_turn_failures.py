"""Turns that break: each point's cause is recorded, nothing stays behind, the suite goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")

from pybench.run.loop import Run
from tests.worker.torch.broken_worker import failure_of, measure_broken

pytestmark = pytest.mark.timeout(1200)

_BENCHMARK = """
[[benchmark]]
name = "{name}"
workload = "turn"
topology = "shared"
backend = "torch"
model = "llama-tiny"
dtype = "float32"
batch_size = 2
prompt_tokens = 4
output_tokens = 4
learning_rate = 0.01
handover = "file"
attempts = 1
max_attempts = 1
steps = 3
max_warmup_steps = 1
time_limit_s = 280
seed = {seed}
"""
# Appended to the staged worker: the second turn breaks.
_DRILL = """

import os as _os
import signal as _signal

_hand_over = Turns._hand_over
_count = []


def _break(self, *, behind=False):
    _count.append(1)
    drill = _NAMES[self._settings.seed]
    if len(_count) == 2:
        if drill == "out_of_memory":
            with self._explained_memory():
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        if drill == "sender_killed":
            weights = self._trainer.weights

            def half(**chosen):
                for number, one in enumerate(weights(**chosen)):
                    if number == 2:
                        _os.kill(_os.getpid(), _signal.SIGKILL)
                    yield one

            self._trainer.weights = half
        if drill == "stale":
            self._engine.read = lambda file: None
    _hand_over(self, behind=behind)


Turns._hand_over = _break
"""
DRILLS = ("out_of_memory", "sender_killed", "stale", "healthy")


@pytest.fixture(scope="module")
def drilled(tmp_path_factory: pytest.TempPathFactory, warm_python: Path) -> Run:
    """One run of all drills; afterwards no process of it is left, and no weights in shared memory."""
    parts = [_BENCHMARK.format(name=name, seed=seed) for seed, name in enumerate(DRILLS)]
    source = _DRILL.replace("_NAMES", repr(DRILLS))
    module = "pybench/worker/backends/turn/turns.py"
    return measure_broken(warm_python, tmp_path_factory.mktemp("drills"), parts, module, source)


@pytest.mark.parametrize(
    ("drill", "cause", "message"),
    [
        ("out_of_memory", "out_of_memory", "in use with the engine asleep at level 1 before the trainer ran out"),
        ("sender_killed", "signal", "signal 9"),
        ("stale", "wrong_result", "model.embed_tokens.weight: shard 0 of the engine holds other bits"),
    ],
)
def test_the_cause_is_recorded(drilled: Run, drill: str, cause: str, message: str) -> None:
    """With what broke, and without any figure."""
    failure = failure_of(drilled, drill)
    assert failure.cause == cause
    assert message in failure.message


def test_the_suite_goes_on(drilled: Run) -> None:
    """The last point is measured; its handover has removed what the killed sender left."""
    [point] = [point for point in drilled.results().points if point.id == "healthy"]
    assert point.status == "ok"
    assert point.metrics["turn_s"].value > 0
    senders = {record.point_id: rank.header.pid for record in drilled.folder.journal.records() for rank in record.ranks}
    assert sorted(senders) == sorted(DRILLS)
    assert [path for pid in senders.values() for path in Path("/dev/shm").glob(f"pybench-handover-{pid}-*")] == []
