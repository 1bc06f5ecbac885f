"""What ranks exchange whose layers are split."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

pytest.importorskip("transformers")
import torch
from torch import nn
from torch.distributed.tensor.debug import CommDebugMode

from pybench.worker.backend import UnsupportedError
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.train.learner import Batch, Task, WholeModel, device_mesh
from pybench.worker.backends.torch.train.model import trainable_model
from pybench.worker.backends.torch.train.strategies import tensor_parallel
from pybench.worker.backends.torch.train.strategies.tensor_parallel import split_layers
from tests.worker.torch.first_rank import first_of
from tests.worker.torch.train_ranks import settings_of

LAYERS = 3
TOKENS = 16
LOSS = 2
"""The largest logit of each token; the sum of their exponentials, with the label's."""
CPU = torch.device("cpu")
ARCHITECTURE: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 64,
    "max_position_embeddings": TOKENS,
    "pad_token_id": 0,
    "eos_token_id": 1,
}


def split_task(*, along: bool) -> Task:
    """Of the first of two ranks, with norms along the sequence or whole."""
    settings = settings_of(
        {"strategy": "tensor_parallel", "tensor_parallel": 2, "sequence_parallel": along, "sequence_tokens": TOKENS}
    )
    return Task(settings, ARCHITECTURE, TorchRanks(rank=0, world_size=2, device=CPU))


@pytest.mark.filterwarnings("ignore:For backward hooks to be called:UserWarning")
@pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
@pytest.mark.parametrize(
    ("along", "forward", "backward"),
    [
        (False, {"all_reduce": 2 * LAYERS + LOSS}, {"all_reduce": 2 * LAYERS + 1}),
        (
            True,
            {"reduce_scatter": 2 * LAYERS + 1, "all_gather": 2 * LAYERS + 1, "all_reduce": LOSS},
            {"reduce_scatter": 2 * LAYERS + 1, "all_gather": 2 * LAYERS + 1},
        ),
    ],
)
def test_a_layer_exchanges_twice_each_way(along: bool, forward: dict[str, int], backward: dict[str, int]) -> None:
    """As Megatron-LM's (arXiv:1909.08053, section 3): once for attention, once for the MLP; and once for the head.

    All-reduces become a reduce-scatter and an all-gather along the sequence, where the embedding has one, too. The
    loss exchanges numbers of each token, and no logits.
    """
    with first_of(2):
        task = split_task(along=along)
        model, weights = trainable_model(task)
        split_layers(task, model, device_mesh(task)["tensor_parallel"])
        weights.fill()
        tokens = torch.arange(TOKENS)[None]
        with CommDebugMode() as seen:  # type: ignore[no-untyped-call]
            loss = model(input_ids=tokens, position_ids=tokens, labels=tokens)
        assert _counts(seen) == forward
        with CommDebugMode() as seen:  # type: ignore[no-untyped-call]
            loss.backward()
        assert _counts(seen) == backward


# The names of functional collectives, which DTensor has, and of others.
_OPERATIONS = {
    "all_reduce": "all_reduce",
    "allreduce_": "all_reduce",
    "all_gather_into_tensor": "all_gather",
    "_allgather_base_": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter",
}


def _counts(seen: CommDebugMode) -> dict[str, int]:
    found: Counter[str] = Counter()
    for name, count in seen.get_comm_counts().items():
        found[_OPERATIONS[str(name).rpartition(".")[2]]] += count
    return dict(found)


@pytest.mark.filterwarnings("ignore:For backward hooks to be called:UserWarning")
@pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
@pytest.mark.parametrize(("along", "sums"), [(False, {}), (True, {"all_reduce": 1})])
def test_norms_gradients_are_summed_at_once(along: bool, sums: dict[str, int]) -> None:
    """Two norms of each layer and the last one; whole norms have their whole gradients."""
    tokens = torch.arange(2 * TOKENS).view(2, TOKENS)
    with first_of(2):
        learner = tensor_parallel.learner(split_task(along=along))
        batch = Batch(tokens=tokens, labels=tokens.clone(), positions=tokens[:1])
        learner.backward(batch, 1.0, last=True)
        with CommDebugMode() as seen:  # type: ignore[no-untyped-call]
            learner.update()
    assert _counts(seen) == sums


@pytest.mark.parametrize("along", [False, True])
def test_logits_are_whole_and_each_sample_has_its_own(along: bool) -> None:
    """Who asks for logits, as a policy's loss does, gets all of them, of samples and tokens."""
    tokens = torch.arange(2 * TOKENS).view(2, TOKENS)
    with first_of(2):
        learner = tensor_parallel.learner(split_task(along=along))
        assert isinstance(learner, WholeModel)
        logits = learner.logits(Batch(tokens=tokens, labels=tokens, positions=tokens[:1]))
    assert logits.shape == (2, TOKENS, ARCHITECTURE["vocab_size"])


def test_a_split_embedding_that_scales_is_refused() -> None:
    """An embedding of another class does more than look up, which a split would lose."""

    class Scaled(nn.Embedding):
        pass

    with first_of(2):
        task = split_task(along=True)
        model, _weights = trainable_model(task)
        body: Any = model.get_submodule("model")
        body.embed_tokens = Scaled(64, 32, device="meta")
        with pytest.raises(UnsupportedError, match="sequence_parallel splits an embedding, and no Scaled"):
            split_layers(task, model, device_mesh(task)["tensor_parallel"])
