"""Frozen weights in four bits (NF4 of QLoRA, arXiv:2305.14314) by bitsandbytes."""

from __future__ import annotations

from typing import Any

import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from bitsandbytes.nn.modules import Linear4bit, Params4bit
from torch import nn

from pybench.worker.backends.torch.architecture import plain


def use_four_bits(model: Any, dtype: torch.dtype) -> None:
    """Replace each projection of the empty ``model``'s layers by one of four bits that computes in ``dtype``.

    Embedding, norms and head stay as they are, as QLoRA leaves them. peft takes these layers where the model is marked.
    """
    for parent in list(model.model.layers.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, nn.Linear):
                build: Any = Linear4bit  # untyped
                four_bits: nn.Module = build(
                    layer.in_features,
                    layer.out_features,
                    bias=layer.bias is not None,
                    compute_dtype=dtype,
                    compress_statistics=True,
                    quant_type="nf4",
                    quant_storage=dtype,  # sharded weights of one layer have one type
                    device="meta",
                )
                setattr(parent, name, four_bits.to(dtype))
    model.is_loaded_in_4bit = True


def unpacked(parameter: torch.Tensor) -> torch.Tensor:
    """A weight of four bits as a matrix of shape (outputs, inputs); any other parameter itself."""
    if not isinstance(parameter, Params4bit):
        return parameter
    state: Any = parameter.quant_state
    weight: torch.Tensor = dequantize_4bit(parameter.data, state)
    return weight


def through_four_bits(name: str, value: torch.Tensor) -> torch.Tensor:
    """``value``, of shape (outputs, inputs), after packing, if four bits pack weights of this name.

    For an engine that computes with the weights of a trainer's four bits.
    """
    if not (name.startswith("model.layers.") and name.endswith("_proj.weight")):
        return value
    rounded: torch.Tensor = dequantize_4bit(*quantize_4bit(value, quant_type="nf4", compress_statistics=True))
    return rounded


def mark_unpacked(model: Any) -> None:
    """Make the weight of each layer of four bits one that :func:`packed` takes the place of.

    transformers packs what it reads of a checkpoint; a weight that this lacks is an ordinary one, which peft refuses.
    """
    for layer in model.modules():
        if isinstance(layer, Linear4bit) and not isinstance(layer.weight, Params4bit):
            weight: Any = Params4bit(layer.weight.data, requires_grad=False, quant_type="nf4", module=layer)
            layer.weight = weight


def packed(value: torch.Tensor, empty: nn.Parameter) -> nn.Parameter:
    """``value``, of shape (outputs, inputs), packed where ``empty`` is a weight of four bits."""
    if not isinstance(empty, Params4bit):
        return plain(value, empty)
    fresh: Any = Params4bit(
        value,
        requires_grad=False,
        compress_statistics=empty.compress_statistics,
        quant_type=empty.quant_type,
        quant_storage=empty.quant_storage,
        module=empty.module,
    )
    parameter: nn.Parameter = fresh.to(value.device)
    return parameter
