"""torchtune's decoder of a Hugging Face config, and weights by its names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torchao.dtypes.nf4tensor import NF4Tensor, to_nf4
from torchtune.models.convert_weights import hf_to_tune, tune_to_hf
from torchtune.models.llama3 import llama3, lora_llama3
from torchtune.models.llama3_1 import llama3_1, lora_llama3_1
from torchtune.models.qwen2 import lora_qwen2, qwen2, qwen2_hf_to_tune, qwen2_tune_to_hf
from torchtune.modules.peft import LoRALinear

from pybench.model.workloads.train import Train, lora_shape
from pybench.worker.backend import UnsupportedError
from pybench.worker.backends.torch.train.model import refuse_tied

# What torchtune's layers are, whatever the config has.
_FIXED = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "use_sliding_window": False}
# What its scaled positions are (Llama 3.1), but for the factor.
_SCALED = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
# Into it and back.
_CONVERTERS = {"llama": (hf_to_tune, tune_to_hf), "qwen2": (qwen2_hf_to_tune, qwen2_tune_to_hf)}
_WITH_ADAPTERS = {llama3: lora_llama3, llama3_1: lora_llama3_1, qwen2: lora_qwen2}
_ATTENTION = {"q_proj": "q_proj", "k_proj": "k_proj", "v_proj": "v_proj", "o_proj": "output_proj"}
# Within the name of a layer that backward computes again.
_RECOMPUTED = "_checkpoint_wrapped_module."
# An adapter's two matrices there, and in peft.
_ADAPTER = {"lora_a": "lora_A", "lora_b": "lora_B"}


def decoder_of(config: Any, settings: Train) -> Any:
    """An equal decoder for the settings' samples and adapters; on the device and in the type of the caller's context.

    Raises :class:`UnsupportedError` where torchtune's builders can't express what the config has.
    """
    _check(config)
    build, positions = _builder(config)
    adapted = _adapted(settings) if settings.lora_rank else {}
    return (_WITH_ADAPTERS[build] if adapted else build)(
        vocab_size=config.vocab_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        embed_dim=config.hidden_size,
        intermediate_dim=config.intermediate_size,
        max_seq_len=settings.sequence_tokens,
        norm_eps=config.rms_norm_eps,
        **positions,
        **adapted,
    )


def adapters(config: Any, model: nn.Module) -> Iterator[tuple[str, str, nn.Parameter]]:
    """Each weight of an adapter: its name in peft, its name in ``model``, and itself."""
    for path, module in model.named_modules():
        if isinstance(module, LoRALinear):
            layer = path.replace(_RECOMPUTED, "")
            shape = torch.empty(module.out_dim, module.in_dim, device="meta")
            [projection] = untuned(config, f"{layer}.weight", shape)
            for own, name in _ADAPTER.items():
                theirs = f"{projection.removesuffix('.weight')}.{name}.default.weight"
                yield theirs, f"{layer}.{own}.weight", module.get_parameter(f"{own}.weight")


def tuned(config: Any, name: str, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """One weight under its name there; llama's queries and keys also have their rows in another order there."""
    return _converted(_CONVERTERS[config.model_type][0], config, name, weight)


def untuned(config: Any, name: str, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """One weight of it under its name in transformers, with its rows in the order there."""
    return _converted(_CONVERTERS[config.model_type][1], config, name.replace(_RECOMPUTED, ""), weight)


def packed(value: torch.Tensor, empty: nn.Parameter) -> nn.Parameter:
    """The parameter in the place of ``empty`` that holds ``value``: in four bits where ``empty`` has them."""
    held = to_nf4(value) if isinstance(empty, NF4Tensor) else value
    return nn.Parameter(held, requires_grad=empty.requires_grad)


def _converted(convert: Any, config: Any, name: str, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = convert(
        {name: weight},
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        dim=config.hidden_size,
    )
    return found


def _adapted(settings: Train) -> dict[str, Any]:
    """Keywords of its builders of decoders with adapters."""
    shape = lora_shape(settings)
    return {
        "lora_attn_modules": [own for name, own in _ATTENTION.items() if name in shape.targets],
        "apply_lora_to_mlp": "up_proj" in shape.targets,
        "lora_rank": shape.rank,
        "lora_alpha": shape.alpha,
        "lora_dropout": settings.lora_dropout or 0.0,
        "quantize_base": settings.weights == "nf4",
    }


def _builder(config: Any) -> tuple[Any, dict[str, Any]]:
    rope = config.rope_parameters
    kind, base = rope["rope_type"], {"rope_base": rope["rope_theta"]}
    if kind == "default":
        return (qwen2 if config.model_type == "qwen2" else llama3), base
    if config.model_type == "llama" and kind == "llama3" and all(rope[key] == _SCALED[key] for key in _SCALED):
        return llama3_1, {**base, "scale_factor": rope["factor"]}
    raise UnsupportedError(f"torchtune's {config.model_type} has no positions like {rope}")


def _check(config: Any) -> None:
    if config.model_type not in _CONVERTERS:
        raise UnsupportedError(f"strategy torchtune knows {', '.join(_CONVERTERS)}, not {config.model_type}")
    refuse_tied(config, "torchtune")
    fixed = {**_FIXED, "head_dim": config.hidden_size // config.num_attention_heads}
    for key, value in fixed.items():
        found = getattr(config, key, value)
        if found not in {value, None}:
            raise UnsupportedError(f"torchtune's {config.model_type} has {key} = {value}, this model {found}")
