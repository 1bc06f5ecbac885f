"""What autograd saves goes to the host once; weights do not."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

pytest.importorskip("transformers")
import torch

from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.train.activation_offload import ActivationOffload
from pybench.worker.backends.torch.train.learner import Task
from pybench.worker.backends.torch.train.model import trainable_model
from tests.worker.torch.train_ranks import TINY, settings_of

TOKENS = torch.arange(2 * 16).reshape(2, 16)


class Double(torch.autograd.Function):
    """Saves a transposed tensor, as compiled layers do, and notes its strides when it is back."""

    strides: ClassVar[list[tuple[int, ...]]] = []

    @staticmethod
    def forward(ctx: Any, given: torch.Tensor) -> torch.Tensor:
        """Twice ``given``."""
        ctx.save_for_backward(given.detach().t())
        return 2 * given

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        """Twice the gradient."""
        Double.strides.append(ctx.saved_tensors[0].stride())
        return 2 * gradient


def empty_model() -> Any:
    """A tiny model without values."""
    task = Task(settings_of({}), TINY, TorchRanks(0, 1, torch.device("cpu")))
    return trainable_model(task)[0]


def test_a_tensor_comes_back_with_its_strides() -> None:
    """Compiled layers check them: 32 rows of 16 numbers, transposed."""
    offload = ActivationOffload(empty_model())
    given = torch.ones(32, 16, requires_grad=True)
    double: Any = Double.apply  # untyped
    with offload():
        found = double(given)
    assert offload.num_bytes == 32 * 16 * 4
    found.sum().backward()
    assert Double.strides == [(1, 16)]


def offloaded_bytes(checkpointing: str) -> int:
    task = Task(settings_of({"activation_checkpointing": checkpointing}), TINY, TorchRanks(0, 1, torch.device("cpu")))
    model, weights = trainable_model(task)
    weights.fill()
    offload = ActivationOffload(model)
    with offload():
        logits = model(input_ids=TOKENS, use_cache=False).logits
    logits.sum().backward()
    assert all(weight.grad is not None for weight in model.parameters())
    return offload.num_bytes


def test_checkpointed_layers_leave_their_inputs_alone_to_the_host() -> None:
    """By hand: two samples of 16 tokens, 64 numbers of 4 bytes, before each of four layers.

    Besides, the last norm's input, as it is and normalised, and the head's.
    """
    hidden = 2 * 16 * 64 * 4
    least, most = 4 * hidden, (4 + 4) * hidden
    assert least < offloaded_bytes("full") <= most


def test_no_weight_is_offloaded() -> None:
    """Without checkpointing: activations, each once, and nothing of the 196,608 weights of the layers."""
    hidden = 2 * 16 * 64 * 4
    assert 4 * 8 * hidden < offloaded_bytes("none") < 4 * 32 * hidden
