"""What autograd saves goes to the host once; weights do not."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")
import torch

from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.train.activation_offload import ActivationOffload
from pybench.worker.backends.torch.train.learner import Task
from pybench.worker.backends.torch.train.model import trainable_model
from tests.worker.torch.train_ranks import TINY, settings_of

TOKENS = torch.arange(2 * 16).reshape(2, 16)


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
