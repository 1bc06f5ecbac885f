"""What autograd keeps of a real layer, counted, against the formula that the plan takes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("transformers")
import torch
from torch.utils.checkpoint import create_selective_checkpoint_contexts

from pybench.core.memory.activations import kept_bytes
from pybench.model.decoder_shape import DecoderShape
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.attention import sequence_masks
from pybench.worker.backends.torch.train import checkpointing
from pybench.worker.backends.torch.train.learner import Task
from pybench.worker.backends.torch.train.loss import summed_loss
from pybench.worker.backends.torch.train.mesh import device_mesh
from pybench.worker.backends.torch.train.model import trainable_model
from pybench.worker.backends.torch.train.strategies.tensor_parallel import split_layers
from tests.worker.torch.first_rank import first_of
from tests.worker.torch.train_ranks import settings_of

TOKENS = 128
ARCHITECTURE: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 512,
    "max_position_embeddings": TOKENS,
    "pad_token_id": 0,
    "eos_token_id": 1,
}
ADAPTERS: dict[str, Any] = {"lora_rank": 8}
EVERYWHERE: dict[str, Any] = {**ADAPTERS, "lora_targets": "all_linear"}
LAST = "after the layers"


class Kept:
    """Bytes of distinct storages that autograd saves, by ``place``; those of ``model`` do not count."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.num_bytes: dict[Any, int] = defaultdict(int)
        self.place: Any = None
        self._seen = {own(parameter).untyped_storage().data_ptr() for parameter in model.parameters()}
        self._held: list[torch.Tensor] = []  # so that no address is given twice

    def add(self, tensor: torch.Tensor) -> torch.Tensor:
        """Count what was not seen yet."""
        storage = own(tensor).untyped_storage()
        if storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            self._held.append(own(tensor))
            self.num_bytes[self.place] += storage.nbytes()
        return tensor


def own(tensor: Any) -> torch.Tensor:
    """This rank's part of a tensor that is split, or that a collective gives."""
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    found: torch.Tensor = local.wait() if hasattr(local, "wait") else local
    return found


def counted(family: str, options: dict[str, Any], ranks: int = 1, **sizes: int) -> tuple[dict[Any, float], float]:
    """Bytes a token: by place those that are counted, and the formula's of one layer and what is behind it."""
    settings = settings_of({"dtype": "bfloat16", "global_batch_size": 1, "sequence_tokens": TOKENS, **options})
    architecture = {**ARCHITECTURE, "model_type": family, **sizes}
    task = Task(settings, architecture, TorchRanks(0, ranks, torch.device("cpu")))
    model, weights = trainable_model(task)
    if ranks > 1:
        split_layers(task, model, device_mesh(task)["tensor_parallel"])
    weights.fill()
    if settings.compile:
        for layer in model.model.layers:
            layer.compile(backend="aot_eager_decomp_partition")
    kept = Kept(model)
    for place, part in ((0, model.model.layers[0]), (1, model.model.layers[1]), (LAST, model.model.norm)):
        part.register_forward_pre_hook(lambda _module, _given, place=place: setattr(kept, "place", place))
    tokens = torch.arange(TOKENS)[None]
    masks = sequence_masks(model.config, TOKENS, torch.device("cpu"))
    with torch.autograd.graph.saved_tensors_hooks(kept.add, lambda tensor: tensor):
        logits = model(input_ids=tokens, attention_mask=masks, position_ids=tokens, use_cache=False).logits
        summed_loss(logits, tokens)
    shape = replace(DecoderShape.from_config(architecture), layers=1)
    return {place: count / TOKENS for place, count in kept.num_bytes.items()}, kept_bytes(settings, shape)


def behind(kept: dict[Any, float]) -> float:
    """Of the last norm and the head, without float32 of each logit, which the estimate of the loss has."""
    return kept[LAST] - 4 * int(ARCHITECTURE["vocab_size"])


@pytest.mark.parametrize(
    ("family", "options", "sizes"),
    [
        *((name, {}, {}) for name in ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma3_text", "phi3")),
        *((name, EVERYWHERE, {}) for name in ("llama", "qwen3", "gemma", "gemma3_text", "phi3")),
        ("llama", ADAPTERS, {}),
        ("llama", {**ADAPTERS, "lora_targets": "attention"}, {}),
        ("llama", {}, {"num_key_value_heads": 4, "intermediate_size": 320}),
        ("llama", {"dtype": "float32"}, {"hidden_size": 512, "num_key_value_heads": 4}),
    ],
)
def test_a_layer_keeps_what_the_formula_has(family: str, options: dict[str, Any], sizes: dict[str, int]) -> None:
    """Scores of attention, 4 heads of 128 numbers for each token, would be a tenth more: no fused kernel keeps them."""
    kept, formula = counted(family, options, **sizes)
    assert kept[1] + behind(kept) == pytest.approx(formula, rel=0.01)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("targets", ["query_value", "attention", "all_linear"])
def test_dropout_keeps_an_input_of_each_adapter(targets: str, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the operator that GPUs take, whose mask has one byte a number."""

    def on_gpus(given: torch.Tensor, p: float, training: bool, _inplace: bool) -> torch.Tensor:
        return torch.native_dropout(given, p, training)[0]

    monkeypatch.setattr(torch.nn.functional, "dropout", on_gpus)
    torch.compiler.reset()
    adapters = {**ADAPTERS, "lora_targets": targets, "lora_dropout": 0.1, "compile": compiled}
    kept, formula = counted("llama", adapters)
    assert kept[1] + behind(kept) == pytest.approx(formula, rel=0.01)


def test_four_bits_keep_no_more_than_frozen_weights() -> None:
    """Backward unpacks them again."""
    pytest.importorskip("bitsandbytes")
    kept, formula = counted("llama", {**EVERYWHERE, "weights": "nf4"})
    assert kept[1] + behind(kept) == pytest.approx(formula, rel=0.01)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
@pytest.mark.parametrize(
    ("family", "options"), [("llama", {}), ("llama", EVERYWHERE), ("gemma3_text", {}), ("phi3", {})]
)
def test_a_compiled_layer_keeps_what_the_formula_has(family: str, options: dict[str, Any]) -> None:
    """What a compiler computes again is decided before its backend makes kernels, so that none is needed."""
    torch.compiler.reset()  # after many compilations of one function torch compiles it no more
    kept, formula = counted(family, {**options, "compile": True})
    assert kept[1] + behind(kept) == pytest.approx(formula, rel=0.01)


@pytest.mark.parametrize("along", [False, True])
def test_a_rank_of_a_split_layer_keeps_its_part(along: bool) -> None:
    """Inputs of projections are whole on each rank, also where norms are split along the sequence."""
    options = {"strategy": "tensor_parallel", "tensor_parallel": 2, "sequence_parallel": along}
    with first_of(2):
        kept, _ = counted("llama", options, ranks=2)
    # By hand: norms 2 * 256 * 6, inputs 2 * 256 * 2; of halves attention 2 * (2 * 256 + 2 * 128) + 16, MLP 8 * 704.
    assert kept[1] == pytest.approx(3072 / (2 if along else 1) + 1024 + (1552 + 5632) / 2, rel=0.01)


@pytest.mark.parametrize(
    ("family", "options"),
    [("llama", {}), ("llama", ADAPTERS), ("llama", EVERYWHERE), ("gemma3_text", {}), ("phi3", EVERYWHERE)],
)
def test_a_selectively_recomputed_layer_keeps_its_products(
    family: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The results of matrix products and attention, which lie beside what autograd saves, and the layer's input."""
    made: list[Any] = []
    create: Any = create_selective_checkpoint_contexts  # untyped

    def recorded(policy: Any) -> Any:
        made.append(create(policy))
        return made[-1]

    monkeypatch.setattr(checkpointing, "create_selective_checkpoint_contexts", recorded)
    kept, formula = counted(family, {**options, "activation_checkpointing": "selective"})
    results = Kept(torch.nn.Module())
    for found in made[1][0].storage.values():
        for held in torch.utils._pytree.tree_leaves(list(found.values())):
            if isinstance(getattr(held, "val", None), torch.Tensor):
                results.add(held.val)
    # A layer's input is saved before its hook names the layer.
    assert kept[0] + results.num_bytes[None] / TOKENS + behind(kept) == pytest.approx(formula, rel=0.01)
