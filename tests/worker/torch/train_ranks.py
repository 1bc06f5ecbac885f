"""One of several gloo ranks: trains three steps by each given strategy and saves the losses. Started by torchrun."""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.distributed.tensor import DTensor

from pybench.model.workloads.train import Train
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.train.learner import WholeModel
from pybench.worker.backends.torch.train.strategies import ddp
from pybench.worker.backends.torch.train.training import Training, training

TINY: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 128,
}
GPT_OSS = {
    "model_type": "gpt_oss",
    "intermediate_size": 32,
    "num_attention_heads": 8,
    "head_dim": 16,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": 4,
}
FAMILY_SHAPES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama"},
    "mistral": {"model_type": "mistral", "sliding_window": 4},
    "qwen2": {"model_type": "qwen2"},
    "qwen3": {"model_type": "qwen3", "head_dim": 16},
    "gemma": {"model_type": "gemma", "head_dim": 16, "tie_word_embeddings": True},
    "gemma3_text": {
        "model_type": "gemma3_text",
        "head_dim": 16,
        "sliding_window": 4,
        "sliding_window_pattern": 3,
        "tie_word_embeddings": True,
    },
    "phi3": {"model_type": "phi3", "sliding_window": 4, "pad_token_id": 0},
    "gpt_oss": GPT_OSS,
}
"""Changes of the tiny shape by family; windows are shorter than the samples."""
NUM_STEPS = 3


def settings_of(options: dict[str, Any]) -> Train:
    """Eight samples of 16 tokens, at a rate that shows every mistake at once: adapters start at nothing."""
    rate = 3e-2 if options.get("lora_rank") else 1e-2
    usual = {"dtype": "float32", "global_batch_size": 8, "sequence_tokens": 16, "learning_rate": rate}
    return Train(backend="torch", model="tiny", **{**usual, **options})


def learning_alone(_task: Any, model: Any, _group: Any = None) -> Any:
    """As if gradients had been averaged."""
    return model


def trained(spec: dict[str, Any], ranks: TorchRanks) -> dict[str, Any]:
    """Losses of the first steps, values of the last, and the metrics after them."""
    options = dict(spec)
    architecture = {**TINY, **options.pop("architecture", {})}
    if compiler := options.pop("compiler", None):
        torch.compiler.set_default_backend(compiler)
        # After another training's shapes the compiler would compile for any shape, which takes twice as long.
        torch.compiler.reset()
    if options.pop("broken", False):
        ddp.replicated = learning_alone  # type: ignore[assignment]
    losses: list[float | None] = []
    kept: list[list[int]] = []
    released: list[int] = []
    with training(settings_of(options), architecture, ranks) as work:
        release = getattr(work.learner, "after_first_exchange", None)
        if isinstance(release, partial) and release.func is ddp.release_first_bucket:
            assert isinstance(work.learner, WholeModel)
            work.learner.after_first_exchange = lambda: released.append(len(losses))
        for index in range(NUM_STEPS):
            begin = time.monotonic()
            outcome = work.step(index)
            length_s = time.monotonic() - begin
            losses.append(outcome.loss)
            values = {**outcome.values, **outcome.late_values(), "step_s": length_s}
            kept.append(_kept_gradients(work))
        metrics = {metric.name: metric.value for metric in work.metrics()}
        kept.append(_kept_gradients(work))
    found = {"losses": losses, "metrics": metrics, "values": values}
    return {**found, "kept_gradients": kept, "released_in": released}


def _kept_gradients(work: Training) -> list[int]:
    """Where memory starts that has gradients, between two steps."""
    gradients = [parameter.grad for parameter in work.learner.parameters() if parameter.grad is not None]
    whole = [gradient for gradient in gradients if not isinstance(gradient, DTensor)]
    return sorted({gradient.untyped_storage().data_ptr() for gradient in whole})


if __name__ == "__main__":
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    here = TorchRanks(rank, distributed.get_world_size(), torch.device("cpu"))
    found = [trained(spec, here) for spec in json.loads(sys.argv[1])]
    Path(f"{sys.argv[2]}.{rank}").write_text(json.dumps(found))
    distributed.barrier()
    os._exit(0)
