"""What the CPU takes to dispatch a training step of split layers, beside one of whole layers: at most three times.

Layers are thin and collectives exchange nothing, so that dispatching is all there is. On GPUs it must not take longer
than the kernels: split by DTensors alone, these layers took six times as long as whole ones.

``python -m pytest -n0 tests/benchmarks/test_split_layers.py``
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

pytest.importorskip("transformers")
import torch

from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.train.learner import Batch, Learner, Task
from pybench.worker.backends.torch.train.strategies import tensor_parallel
from tests.worker.torch.first_rank import first_of
from tests.worker.torch.train_ranks import settings_of

RANKS = 4
TOKENS = 16
ROUNDS = 7
LIMIT = 3.0
ARCHITECTURE: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 32,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 8,
    "vocab_size": 64,
    "max_position_embeddings": TOKENS,
    "pad_token_id": 0,
    "eos_token_id": 1,
}


@contextmanager
def learner_of(num_ranks: int, *, along: bool | None = None) -> Iterator[Learner]:
    """The first rank's part of the model."""
    settings = settings_of(
        {
            "strategy": "tensor_parallel",
            "tensor_parallel": num_ranks,
            "sequence_parallel": along,
            "sequence_tokens": TOKENS,
            "activation_checkpointing": "full",
        }
    )
    with first_of(num_ranks):
        ranks = TorchRanks(rank=0, world_size=num_ranks, device=torch.device("cpu"))
        yield tensor_parallel.learner(Task(settings, ARCHITECTURE, ranks))


def step(learner: Learner) -> None:
    """Forward, backward and update."""
    tokens = torch.arange(TOKENS)[None]
    learner.backward(Batch(tokens=tokens, labels=tokens.clone(), positions=tokens), 1.0, last=True)
    learner.update()


def whole_s() -> float:
    """CPU time of the fastest of some steps of whole layers."""
    took = []
    with learner_of(1) as learner:
        step(learner)
        for _ in range(ROUNDS):
            began = time.process_time()
            step(learner)
            took.append(time.process_time() - began)
    return min(took)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.benchmark(group="split layers", timer=time.process_time)
@pytest.mark.parametrize("along", [False, True], ids=["norms whole", "norms along the sequence"])
def test_split_layers_are_dispatched_fast(benchmark: BenchmarkFixture, along: bool) -> None:
    """A step of layers split over four ranks: at most three times the CPU time of whole ones."""
    before_s = whole_s()
    with learner_of(RANKS, along=along) as split:
        benchmark.pedantic(step, args=(split,), rounds=ROUNDS, warmup_rounds=2)
    assert benchmark.stats is not None
    ratio = benchmark.stats.stats.min / min(before_s, whole_s())
    benchmark.extra_info["times the CPU time of whole layers"] = round(ratio, 2)
    assert ratio <= LIMIT
