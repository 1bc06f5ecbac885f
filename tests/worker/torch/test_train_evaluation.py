"""Evaluation between training steps."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("transformers")

import torch

from pybench.worker.backend import WrongResultError
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.architecture import build_model
from pybench.worker.backends.torch.train import evaluation as evaluation_module
from pybench.worker.backends.torch.train.evaluation import Evaluation, greedy_answers
from pybench.worker.backends.torch.train.learner import Task, WholeModel
from pybench.worker.backends.torch.train.training import training
from tests.worker.torch.train_ranks import TINY, settings_of

RANK = TorchRanks(0, 1, torch.device("cpu"))
SMALL = {**TINY, "vocab_size": 12}
EVERY: dict[str, Any] = {"evaluation_every_steps": 200, "evaluation_batches": 3}
DECODED: dict[str, Any] = {
    "evaluation_every_steps": 200,
    "evaluation_batches": 1,
    "evaluation_method": "generation",
    "evaluation_output_tokens": 2,
}


@pytest.fixture(scope="module")
def model() -> Any:
    return build_model(SMALL, torch.float32, RANK.device, 0).eval()


PROMPTS = torch.arange(10).view(2, 5)


@torch.no_grad()
def _log_probabilities(model: Any, prompt: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
    """Of each whole answer, by one pass over prompt and answers without any cache."""
    whole = torch.cat([prompt.expand(len(answers), -1), answers], dim=1)
    found = torch.log_softmax(model(input_ids=whole, use_cache=False).logits, dim=-1)
    return found[:, len(prompt) - 1 : -1].gather(-1, answers[..., None]).sum(dim=(1, 2))


@torch.no_grad()
def test_answers_take_the_likeliest_token_each_time(model: Any) -> None:
    """Tokens and scores are those of passes without a cache."""
    answers, scores = greedy_answers(model, PROMPTS, 4)
    whole = PROMPTS
    for _ in range(4):
        likeliest = model(input_ids=whole, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
        whole = torch.cat([whole, likeliest], dim=1)
    assert torch.equal(answers, whole[:, 5:])
    for prompt, answer, score in zip(PROMPTS, answers, scores, strict=True):
        assert float(score) == pytest.approx(float(_log_probabilities(model, prompt, answer[None])), rel=1e-5)


@pytest.mark.parametrize("options", [EVERY, DECODED], ids=["loss", "greedy"])
def test_an_evaluation_is_timed_and_changes_no_training(options: dict[str, Any]) -> None:
    """The same losses with it, and one figure more."""
    found = []
    for given in ({}, options):
        with training(settings_of(given), TINY, RANK) as work:
            losses = [work.step(0).loss]
            metrics = {metric.name: metric.value for metric in work.metrics()}
            found.append([*losses, work.step(1).loss])
    assert found[0] == found[1]
    assert metrics["evaluation_s"] > 0


@pytest.mark.parametrize("accumulated", [None, 1, 2])
def test_results_of_every_batch_reach_the_host(accumulated: int | None) -> None:
    """However many stay on the device together; the samples are not those of training."""
    settings = settings_of({**EVERY, "evaluation_accumulation_steps": accumulated})
    with training(settings, TINY, RANK) as work:
        learner = work.learner
        assert isinstance(learner, WholeModel)
        evaluation = Evaluation(Task(settings, TINY, RANK), learner)
        losses = [float(loss) for (loss,) in evaluation.evaluate()]
        trained = work.step(0).loss
    assert len(set(losses)) == 3
    assert trained is not None
    # Summed over 8 samples of 15 predicted tokens, near what random weights give.
    assert all(abs(loss / (8 * 15) - trained) < 0.1 for loss in losses)
    assert all(loss / (8 * 15) != pytest.approx(trained, abs=1e-7) for loss in losses)


@pytest.mark.parametrize(("enough_s", "times"), [(0.0, 1), (60.0, 3)])
def test_a_long_evaluation_is_not_repeated(enough_s: float, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch warms up; then evaluations of all three batches, once where they take long enough."""
    monkeypatch.setattr(evaluation_module, "_ENOUGH_S", enough_s)
    settings = settings_of(EVERY)
    with training(settings, TINY, RANK) as work:
        assert isinstance(work.learner, WholeModel)
        evaluation = Evaluation(Task(settings, TINY, RANK), work.learner)
        sizes: list[int] = []
        evaluate = evaluation.evaluate

        def counted(*given: Any) -> Any:
            found = evaluate(*given)
            sizes.append(len(found))
            return found

        monkeypatch.setattr(evaluation, "evaluate", counted)
        evaluation.metrics()
    assert sizes == [1] + [3] * times


@pytest.mark.parametrize("options", [EVERY, DECODED], ids=["loss", "greedy"])
def test_a_model_without_finite_numbers_is_no_length(options: dict[str, Any]) -> None:
    """Its answers are tokens like others: their scores show it."""
    with training(settings_of(options), TINY, RANK) as work:
        assert isinstance(work.learner, WholeModel)
        with torch.no_grad():
            work.learner.model.model.norm.weight.fill_(float("nan"))
        with pytest.raises(WrongResultError, match="no finite number"):
            work.metrics()
