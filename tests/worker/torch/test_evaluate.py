"""Evaluation: what it says must not depend on the number of ranks."""

from __future__ import annotations

from typing import Literal

import pytest

pytest.importorskip("transformers")

from pybench.model.wire import Step
from pybench.model.workloads.evaluate import Evaluate
from tests.builders import TINY
from tests.worker.conftest import RunWorker, points_of, run_staged, staged, steps_of


def settings(method: Literal["loss", "generation"], ranks: int) -> Evaluate:
    """4 samples of 6 prompt and 4 answer tokens."""
    return Evaluate(
        backend="torch",
        model="tiny",
        dtype="float32",
        method=method,
        batch_size=4,
        prompt_tokens=6,
        output_tokens=4,
        data_parallel=ranks,
    )


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[list[list[Step]]]:
    """Measured steps of both methods, of both ranks: one worker measures them one after the other."""
    loss, generation = settings("loss", 2), settings("generation", 2)
    code, streams, log = run_staged(staged(tmp_path_factory.mktemp("two")), loss, dict(TINY), 2, then=(generation,))
    assert code == 0, log
    return [[steps_of(part) for part in parts] for parts in zip(*map(points_of, streams), strict=True)]


def test_two_ranks_find_one_ranks_loss(run_worker: RunWorker, two_ranks: list[list[list[Step]]]) -> None:
    """Of the same samples; near ln(256) from random weights."""
    code, [alone], log = run_worker(settings("loss", 1), dict(TINY))
    assert code == 0, log
    both, _ = two_ranks
    assert {step.work.samples for steps in (steps_of(alone), *both) for step in steps} == {4}
    one = {step.index: step.loss for step in steps_of(alone)}
    first, second = ({step.index: step.loss for step in steps} for steps in both)
    assert first == second
    assert one.keys() & first.keys()
    for index in one.keys() & first.keys():
        assert first[index] == pytest.approx(one[index], rel=1e-5)
        assert one[index] == pytest.approx(5.55, abs=0.3)


def test_generation_evaluates_every_sample(two_ranks: list[list[list[Step]]]) -> None:
    """There is no loss: answers are decoded, not predicted."""
    _, generation = two_ranks
    for steps in generation:
        assert [(step.work.samples, step.loss) for step in steps] == [(4, None)] * 2
