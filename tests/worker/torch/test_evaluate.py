"""Evaluation: what it says must not depend on the number of ranks."""

from __future__ import annotations

from typing import Any, Literal

import pytest

pytest.importorskip("transformers")

from pybench.model.wire import Step
from pybench.model.workloads.evaluate import Evaluate
from tests.worker.conftest import steps_of


def measured(run_worker: Any, architecture: Any, method: Literal["loss", "generation"], ranks: int) -> list[list[Step]]:
    """Measured steps of every rank: 4 samples of 6 prompt and 4 answer tokens."""
    settings = Evaluate(
        backend="torch",
        model="tiny",
        dtype="float32",
        method=method,
        batch_size=4,
        prompt_tokens=6,
        output_tokens=4,
        data_parallel=ranks,
    )
    code, streams, log = run_worker(settings, architecture, ranks)
    assert code == 0, log
    return [steps_of(events) for events in streams]


def test_two_ranks_find_one_ranks_loss(run_worker: Any, architecture: dict[str, Any], tmp_path: Any) -> None:
    """Of the same samples; near ln(256) from random weights."""
    found = {}
    for ranks in (1, 2):
        streams = measured(run_worker, architecture, "loss", ranks)
        (tmp_path / "exchange").rename(tmp_path / f"exchange-{ranks}")
        found[ranks] = [{step.index: step.loss for step in steps} for steps in streams]
        assert {step.work.samples for steps in streams for step in steps} == {4}
    both = found[1][0].keys() & found[2][0].keys()
    assert found[2][0] == found[2][1]
    for index in both:
        assert found[2][0][index] == pytest.approx(found[1][0][index], rel=1e-5)
        assert found[1][0][index] == pytest.approx(5.55, abs=0.3)


def test_generation_evaluates_every_sample(run_worker: Any, architecture: dict[str, Any]) -> None:
    """There is no loss: answers are decoded, not predicted."""
    for steps in measured(run_worker, architecture, "generation", 2):
        assert [(step.work.samples, step.loss) for step in steps] == [(4, None)] * 2
