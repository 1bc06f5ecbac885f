"""What whole layers read and write beside their products, counted kernel by kernel on tensors without data."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("peft")
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import Gemma3TextConfig, LlamaConfig, Qwen3Config
from transformers.models.gemma3.modeling_gemma3 import Gemma3DecoderLayer
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer

from pybench.core.adapters import adapted_sides
from pybench.explain.comm_model.adapters import around_adapters
from pybench.explain.comm_model.inner import gathered_keys, plain_inner
from pybench.explain.comm_model.norms import plain_norms
from pybench.model.decoder_shape import DecoderShape
from pybench.model.workloads.train import Train
from pybench.worker.backends.torch.train.lora import add_adapters
from tests.worker.torch.traffic import Traffic

TOKENS = 512
_SIZES = {
    "hidden_size": 1024,
    "intermediate_size": 3584,
    "num_hidden_layers": 1,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 128,
}
FAMILIES: dict[str, tuple[Any, Any]] = {
    "llama": (LlamaConfig, LlamaDecoderLayer),
    "qwen3": (Qwen3Config, Qwen3DecoderLayer),
    "gemma3_text": (Gemma3TextConfig, Gemma3DecoderLayer),
}


@pytest.fixture(autouse=True)
def _short_numbers() -> Any:
    """Layers have 16-bit numbers."""
    torch.set_default_dtype(torch.bfloat16)
    yield
    torch.set_default_dtype(torch.float32)


def _shape(family: str) -> DecoderShape:
    return DecoderShape.from_config({**_SIZES, "model_type": family, "vocab_size": 64})


def _passed(layer: torch.nn.Module) -> tuple[float, float]:
    """Bytes of a token, forward and backward."""
    given = torch.empty(1, TOKENS, 1024, requires_grad=True)
    turns = (torch.empty(1, TOKENS, 128), torch.empty(1, TOKENS, 128))
    forward, backward = Traffic(), Traffic()
    with forward:
        found = layer(given, position_embeddings=turns, attention_mask=None)
    states = found[0] if isinstance(found, tuple) else found
    with backward:
        states.backward(torch.empty_like(states))
    return forward.num_bytes / TOKENS, backward.num_bytes / TOKENS


def _layer(family: str) -> torch.nn.Module:
    config, build = FAMILIES[family]
    layer: torch.nn.Module = build(config(**_SIZES, attn_implementation="sdpa"), 0)
    return layer


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_layer_moves_what_is_counted(family: str, trained: bool) -> None:
    """Within 1.5 %: cosines and sines, and one number for each token, are left out."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        layer = _layer(family).requires_grad_(trained)
        counted = _passed(layer)
    shape = _shape(family)
    inner, norms = plain_inner(shape, 2, trained=trained), plain_norms(2, family, trained=trained)
    expected = (inner.forward + 1024 * norms.forward, inner.backward + 1024 * norms.backward)
    assert counted == pytest.approx(expected, rel=0.015)


@pytest.mark.parametrize("dropout", [None, 0.1])
@pytest.mark.parametrize("targets", ["query_value", "all_linear"])
def test_adapters_add_what_is_counted(targets: Any, dropout: float | None) -> None:
    """By peft. A CPU draws dropout's mask in numbers, scales it, and has two kernels where a GPU has one."""
    settings = Train(
        backend="torch",
        model="m",
        global_batch_size=1,
        sequence_tokens=TOKENS,
        lora_rank=16,
        lora_targets=targets,
        lora_dropout=dropout,
    )
    with torch.device("meta"):
        without, model = _layer("llama").requires_grad_(requires_grad=False), torch.nn.Sequential(_layer("llama"))
        model.requires_grad_(requires_grad=False)
        add_adapters(model, settings, torch.bfloat16)
        plain, adapted = _passed(without), _passed(model[0].train())
    sides = adapted_sides(_shape("llama"), settings)
    around = around_adapters(sides, 2, fused=False, packed=False, dropped=False)
    inputs = sum(each for each, _ in sides)
    masked = (3 * 4 + 2 if dropout else 0, 6 if dropout else 0)
    assert adapted[0] - plain[0] == pytest.approx(around.forward + masked[0] * inputs, rel=0.01)
    assert adapted[1] - plain[1] == pytest.approx(around.backward + masked[1] * inputs, rel=0.01)
    dropped = around_adapters(sides, 2, fused=False, packed=False, dropped=True)
    assert (dropped.forward - around.forward, dropped.backward - around.backward) == (5 * inputs, 5 * inputs)


def test_four_bits_copy_the_outputs_of_projections_with_adapters() -> None:
    """3 + 5 outputs are copied in numbers of 2 bytes, once."""
    sides = [(2, 3), (4, 5)]
    plain, packed = (around_adapters(sides, 2, fused=False, packed=bits, dropped=False) for bits in (False, True))
    assert (packed.forward - plain.forward, packed.backward - plain.backward) == (2 * 2 * 8, 0)


def test_compiled_adapters_have_a_kernel_less() -> None:
    """8 outputs are written once less and read once less, the sum of 6 inputs' gradients reads one more number."""
    sides = [(2, 3), (4, 5)]
    plain, fused = (around_adapters(sides, 2, fused=joined, packed=False, dropped=False) for joined in (False, True))
    assert (plain.forward - fused.forward, plain.backward - fused.backward) == (2 * 2 * 8, 2 * 2 * 6)


@pytest.mark.parametrize(("samples", "heads", "moved"), [(2, 2, 2 * 4), (1, 2, 0), (2, 8, 2 * (4 + 2 + 8)), (1, 8, 20)])
def test_gathered_keys_are_put_in_order_and_repeated(samples: int, heads: int, moved: int) -> None:
    """Of 3 ranks' tokens; keys and values of 2 heads, in heads read and written."""
    shape = DecoderShape.from_config({**_SIZES, "num_attention_heads": heads, "vocab_size": 64})
    found = gathered_keys(shape, 2, 3, in_order=samples == 1)
    width, chunks, bytes_of_number = 128, 3, 2
    assert found.forward == found.backward == moved * width * chunks * bytes_of_number
