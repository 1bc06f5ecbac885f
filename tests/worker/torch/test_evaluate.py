"""The result of an evaluation does not depend on the number of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import torch

from pybench.model.wire import Event, Metric, WorkOrder
from pybench.model.workloads.evaluate import Evaluate
from pybench.worker.backend import WrongResultError
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.common_torch.samples import GenerationEvaluation, answer_loss, sample_tokens
from pybench.worker.backends.transformers.entry import TransformersGeneration, _workload, build_model
from tests.builders import TINY
from tests.worker.conftest import RunWorker, points_of, run_staged, staged, steps_of


def settings(method: Literal["loss", "generation"], ranks: int, **more: Any) -> Evaluate:
    """4 samples of 6 prompt and 4 answer tokens."""
    return Evaluate(
        backend=more.pop("backend", "torch"),
        model="tiny",
        dtype="float32",
        method=method,
        batch_size=4,
        prompt_tokens=6,
        output_tokens=4,
        data_parallel=ranks,
        **more,
    )


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory, warm_python: Path) -> list[list[list[Event]]]:
    """Events of both methods, of both ranks: one worker measures them one after the other."""
    loss, generation = settings("loss", 2), settings("generation", 2)
    stage = staged(tmp_path_factory.mktemp("two"))
    code, streams, log = run_staged(stage, loss, dict(TINY), 2, then=(generation,), python=warm_python)
    assert code == 0, log
    return [list(parts) for parts in zip(*map(points_of, streams), strict=True)]


def test_two_ranks_find_one_ranks_loss(run_worker: RunWorker, two_ranks: list[list[list[Event]]]) -> None:
    """Of the same samples; near ln(256) from random weights."""
    code, [alone], log = run_worker(settings("loss", 1), dict(TINY))
    assert code == 0, log
    both = [steps_of(events) for events in two_ranks[0]]
    assert {step.work.samples for steps in (steps_of(alone), *both) for step in steps} == {4}
    one = {step.index: step.loss for step in steps_of(alone)}
    first, second = ({step.index: step.loss for step in steps} for steps in both)
    assert first == second
    assert one.keys() & first.keys()
    for index in one.keys() & first.keys():
        assert first[index] == pytest.approx(one[index], rel=1e-5)
        assert one[index] == pytest.approx(5.55, abs=0.3)


def test_generation_evaluates_every_sample(two_ranks: list[list[list[Event]]]) -> None:
    """There is no loss of a step: answers are decoded. Each rank's own are likelier than chance."""
    found = []
    for events in two_ranks[1]:
        assert [(step.work.samples, step.loss) for step in steps_of(events)] == [(4, None)] * 2
        found += [event.value for event in events if isinstance(event, Metric) and event.name == "answer_loss"]
    assert len(set(found)) == 2
    assert all(4 < loss < 5.545 for loss in found)


RANK = TorchRanks(0, 1, torch.device("cpu"))


@pytest.fixture(scope="module")
def decoded() -> dict[int, tuple[GenerationEvaluation, float]]:
    """By transformers with 1, 2 and 8 beams, in each the same model: the evaluation and its answers' loss."""
    model = build_model(dict(TINY), settings("generation", 1, backend="transformers").decoding, RANK.device)
    found = {}
    for beams in (1, 2, 8):
        given = settings("generation", 1, backend="transformers", beams=beams)
        generation = TransformersGeneration(given.decoding, model, RANK.device, RANK.rank, beams)
        evaluation = GenerationEvaluation(given, generation, model)
        assert evaluation.step(3).work.samples == 4
        (loss,) = [metric.value for metric in evaluation.metrics() if metric.name == "answer_loss"]
        found[beams] = (evaluation, loss)
    return found


def test_one_beam_is_greedy(decoded: dict[int, tuple[GenerationEvaluation, float]]) -> None:
    """The likeliest token each time, by passes without a cache; the loss is that of those tokens, by hand."""
    evaluation, loss = decoded[1]
    generation = evaluation.generation
    whole = generation.prompts(3)
    with torch.no_grad():
        for _ in range(4):
            likely = evaluation.model(input_ids=whole).logits[:, -1].argmax(-1, keepdim=True)
            whole = torch.cat([whole, likely], dim=1)
        each = torch.log_softmax(evaluation.model(input_ids=whole).logits[:, 5:-1], dim=-1)
    assert torch.equal(generation.output, whole[:, 6:])
    assert loss == pytest.approx(-float(each.gather(-1, whole[:, 6:, None]).mean()), rel=1e-5)


def test_more_beams_find_likelier_answers(decoded: dict[int, tuple[GenerationEvaluation, float]]) -> None:
    """Of the declared length; here no search drops the greedy answer for a worse one."""
    losses = [loss for _, loss in decoded.values()]
    assert losses == sorted(losses, reverse=True)
    assert losses[2] < losses[0]
    assert all(evaluation.generation.output.shape == (4, 4) for evaluation, _ in decoded.values())
    outputs = [evaluation.generation.output for evaluation, _ in decoded.values()]
    assert not torch.equal(outputs[0], outputs[2])


def test_the_librarys_loss_is_that_of_the_answers() -> None:
    """The loss is computed by hand from the answer's logits; a step that generates has no loss."""
    given = settings("loss", 1, backend="transformers")
    order = WorkOrder(point_id="p", settings=given, architecture={}, device="cpu", steps=1, max_warmup_steps=1)
    model = build_model(dict(TINY), given.decoding, RANK.device)
    with _workload(order, model, RANK) as work:
        outcome = work.step(1)
    tokens = sample_tokens(4, 4, 10, 256, given.seed)
    with torch.no_grad():
        each = torch.log_softmax(model(input_ids=tokens).logits[:, 5:-1], dim=-1)
    assert outcome.work.samples == 4
    assert outcome.loss == pytest.approx(-float(each.gather(-1, tokens[:, 6:, None]).mean()), rel=1e-5)


@pytest.mark.parametrize(
    ("tokens", "scale", "problem"),
    [
        (torch.zeros(2, 9, dtype=torch.long), 1.0, "ended after 9 tokens of prompt and answer, not after 10"),
        (torch.full((2, 10), 256), 1.0, "outside of the vocabulary of 256"),
        (torch.zeros(2, 10, dtype=torch.long), float("nan"), "computes no finite numbers"),
    ],
    ids=["short", "no token", "not finite"],
)
def test_what_is_no_answer_is_a_failure(tokens: torch.Tensor, scale: float, problem: str) -> None:
    """Neither its length nor its numbers are believed."""
    with pytest.raises(WrongResultError, match=problem):
        answer_loss(settings("generation", 1), tokens, 256, lambda one: torch.zeros(*one.shape, 256) * scale)
