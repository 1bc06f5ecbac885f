"""torchtune's decoder of a Hugging Face config, and weights by its names."""

from __future__ import annotations

from typing import Any

import torch
from torchtune.models.convert_weights import hf_to_tune, tune_to_hf
from torchtune.models.llama3 import llama3
from torchtune.models.llama3_1 import llama3_1
from torchtune.models.qwen2 import qwen2, qwen2_hf_to_tune, qwen2_tune_to_hf

from pybench.worker.backend import UnsupportedError
from pybench.worker.backends.torch.train.model import refuse_tied

# What torchtune's layers are, whatever the config has.
_FIXED = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "use_sliding_window": False}
# What its scaled positions are (Llama 3.1), but for the factor.
_SCALED = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
# Into it and back.
_CONVERTERS = {"llama": (hf_to_tune, tune_to_hf), "qwen2": (qwen2_hf_to_tune, qwen2_tune_to_hf)}


def decoder_of(config: Any, sequence_tokens: int) -> Any:
    """An equal decoder for sequences so long; on the device and in the type of the caller's context.

    Raises :class:`UnsupportedError` where torchtune's builders can't express what the config has.
    """
    _check(config)
    build, positions = _builder(config)
    return build(
        vocab_size=config.vocab_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        embed_dim=config.hidden_size,
        intermediate_dim=config.intermediate_size,
        max_seq_len=sequence_tokens,
        norm_eps=config.rms_norm_eps,
        **positions,
    )


def tuned(config: Any, name: str, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """One weight under its name there; llama's queries and keys also have their rows in another order there."""
    return _converted(_CONVERTERS[config.model_type][0], config, name, weight)


def untuned(config: Any, name: str, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """One weight of it under its name in transformers, with its rows in the order there."""
    return _converted(_CONVERTERS[config.model_type][1], config, name, weight)


def _converted(convert: Any, config: Any, name: str, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = convert(
        {name: weight},
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        dim=config.hidden_size,
    )
    return found


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
