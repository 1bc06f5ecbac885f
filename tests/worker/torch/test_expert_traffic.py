"""What experts read and write beside their products, counted kernel by kernel on tensors without data."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import GptOssConfig
from transformers.integrations.moe import grouped_mm_experts_forward
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssMLP

from pybench.explain.comm_model.experts import plain_experts
from pybench.model.decoder_shape import DecoderShape
from tests.worker.torch.traffic import Traffic

TOKENS = 512


def counted(shape: DecoderShape, *, trained: bool) -> tuple[float, float]:
    """Bytes of a token, forward and backward."""
    config = GptOssConfig(
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_local_experts=shape.num_experts,
        num_experts_per_tok=shape.active_experts,
    )
    forward, backward = Traffic(), Traffic()
    with FakeTensorMode(allow_non_fake_inputs=True):
        mlp = GptOssMLP(config)
        weights = {name: one.to(torch.bfloat16) for name, one in mlp.experts.named_parameters()}
        for name, weight in weights.items():
            setattr(mlp.experts, name, torch.nn.Parameter(weight, requires_grad=trained))
        given = torch.empty(TOKENS, shape.hidden, dtype=torch.bfloat16, requires_grad=True)
        scores = torch.empty(TOKENS, shape.active_experts, dtype=torch.bfloat16, requires_grad=True)
        chosen = torch.zeros(TOKENS, shape.active_experts, dtype=torch.long)
        with forward:
            states = grouped_mm_experts_forward(mlp.experts, given, chosen, scores)
        with backward:
            states.backward(torch.empty_like(states))
    return forward.num_bytes / TOKENS, backward.num_bytes / TOKENS


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize(("hidden", "intermediate", "active"), [(2880, 2880, 4), (1024, 4096, 2)])
def test_experts_move_what_is_counted(hidden: int, intermediate: int, active: int, trained: bool) -> None:
    """Within 1 %: numbers of each row, such as its expert, are left out."""
    config = {
        "model_type": "gpt_oss",
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": 1,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "vocab_size": 64,
        "num_local_experts": 8,
        "num_experts_per_tok": active,
    }
    shape = DecoderShape.from_config(config)
    expected = plain_experts(shape, 2, trained=trained)
    assert counted(shape, trained=trained) == pytest.approx((expected.forward, expected.backward), rel=0.01)
