"""A model from its shape alone: built without memory, then filled with weights that don't depend on the ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM

from pybench.model.backend import BACKENDS
from pybench.worker.backend import UnsupportedError
from pybench.worker.backends.torch import attention
from pybench.worker.backends.torch.tensor_parallel import like, split_linears
from pybench.worker.seeds import WEIGHT_STD, weight_seed

# Families whose module names, attention masks and buffers this backend knows.
FAMILIES = BACKENDS["torch"].model_types

Changed = Callable[[str, torch.Tensor], torch.Tensor]
"""Gives the value that a weight has, by its name in transformers, instead of its own."""


def build_model(
    architecture: dict[str, Any], dtype: torch.dtype, device: torch.device, seed: int, mesh: DeviceMesh | None = None
) -> nn.Module:
    """Model on ``device`` with random weights; with ``mesh``, only this rank's part of each layer.

    Raises :class:`UnsupportedError` for a family this backend does not know.
    """
    model = empty_model(architecture, dtype)
    weights = Weights(model, device, seed)
    if mesh is not None:
        split_linears(model, mesh)
    weights.fill()
    return model


def empty_model(architecture: dict[str, Any], dtype: torch.dtype) -> nn.Module:
    """Model without memory. Raises :class:`UnsupportedError` for a family this backend does not know."""
    family = architecture.get("model_type")
    if family not in FAMILIES:
        raise UnsupportedError(f"model_type {family!r}: the torch backend knows {', '.join(FAMILIES)}")
    values = {key: value for key, value in architecture.items() if key != "model_type"}
    config = AutoConfig.for_model(family, **values)
    AttentionInterface.register(attention.NAME, attention.attend)
    with torch.device("meta"):
        build: Any = AutoModelForCausalLM.from_config  # partly untyped
        model: nn.Module = build(config, dtype=dtype, attn_implementation=attention.NAME)
    return model


def plain(value: torch.Tensor, empty: nn.Parameter) -> nn.Parameter:
    """The parameter that takes the place of ``empty``, split as that is."""
    return nn.Parameter(like(value, empty), requires_grad=empty.requires_grad)


@dataclass
class Weights:
    """Fills an empty model, all at once or part by part, before or after it was split; made before any split.

    ``make`` turns the value of a weight and its empty parameter into the parameter that holds it; ``changed`` gives the
    value that a weight of a name, in transformers, has instead of its own.
    """

    model: nn.Module
    device: torch.device
    seed: int
    make: Callable[[torch.Tensor, nn.Parameter], nn.Parameter] = plain
    changed: Changed | None = None

    def __post_init__(self) -> None:
        # Second names of tied weights, each with its first: a split unties them, their values must stay the same.
        named = list(self.model.named_parameters(remove_duplicate=False))
        first = {id(parameter): name for name, parameter in reversed(named)}
        self._tied = {name: first[id(parameter)] for name, parameter in named if first[id(parameter)] != name}
        # Tied weights are one parameter under two names. No other is kept: who splits it must be able to let it go.
        self._filled: dict[int, nn.Parameter] = {}

    @torch.no_grad()
    def fill_parameters(self, within: str = "") -> None:
        """Fill those parameters of the module ``within`` that have no memory yet."""
        for module_name, module in self.model.get_submodule(within).named_modules(prefix=within):
            for leaf, meta in list(module.named_parameters(recurse=False)):
                if not meta.is_meta:
                    continue
                name = self._tied.get(f"{module_name}.{leaf}", f"{module_name}.{leaf}")
                parameter = self._filled.get(id(meta))
                if parameter is None:
                    parameter = self.make(self._value(name, module, meta), meta)
                if name in self._tied.values():
                    self._filled[id(meta)] = parameter
                setattr(module, leaf, parameter)

    def fill(self) -> None:
        """Fill all parameters and buffers that are left."""
        self.fill_parameters()
        # The buffers that no checkpoint would hold, in float32 as the library computes them.
        for parent in list(self.model.modules()):
            for name, child in list(parent.named_children()):
                if name == "rotary_emb":
                    setattr(parent, name, type(child)(child.config).to(self.device))
                elif "embed_scale" in dict(child.named_buffers(recurse=False)):
                    child.embed_scale = torch.tensor(float(child.embedding_dim) ** 0.5, device=self.device)  # type: ignore[arg-type]
        left = [name for name, buffer in self.model.named_buffers() if buffer.is_meta]
        if left:
            raise UnsupportedError(f"{type(self.model).__name__}: no rule to compute the buffers {', '.join(left)}")

    def named(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Each weight by its full name, made when its turn comes; tied ones once. The model stays empty."""
        for name, meta in self.model.named_parameters():
            yield name, self._value(name, self.model.get_submodule(name.rpartition(".")[0]), meta)

    def _value(self, name: str, module: nn.Module, meta: nn.Parameter) -> torch.Tensor:
        """0 for biases and the second half of an adapter, identity for norms, random numbers for all others."""
        # A layer under an adapter has the weights that it has without one.
        plain, kind = name.replace(".base_layer", ""), type(module).__name__
        weight = torch.empty(meta.shape, dtype=meta.dtype, device=self.device)
        if name.endswith((".bias", "_bias")) or ".lora_B." in name:
            weight.zero_()
        elif "RMSNorm" in kind:
            weight.fill_(0.0 if kind.startswith("Gemma") else 1.0)  # Gemma's norms multiply by 1 + weight
        else:
            generator = torch.Generator(self.device).manual_seed(weight_seed(self.seed, plain))
            weight.normal_(0.0, WEIGHT_STD, generator=generator)
        config: Any = self.model.config
        has_experts = getattr(config, "num_local_experts", None) is not None
        value = balanced(plain, weight, config.hidden_size) if has_experts else weight
        return value if self.changed is None else self.changed(plain, value)


# Random weights under which a mixture's tokens spread over its experts evenly.
#
# Plain random weights do not: an expert adds nearly the same to all tokens, and from the second layer on most tokens go
# to the same few experts. Here some of the hidden numbers are written by the embedding alone, and routers read these
# only. Shapes and operations stay the same.


# Routers read one in 16 of the hidden numbers.
_SHARE = 16


def balanced(name: str, weight: torch.Tensor, hidden: int) -> torch.Tensor:
    """Weight ``name`` of a mixture whose layers exchange ``hidden`` numbers, changed in place."""
    width = hidden // _SHARE
    if name.endswith("embed_tokens.weight"):
        weight[:, :width] /= WEIGHT_STD
    elif name.endswith("router.weight"):
        # Rows have equal length: the expert with the longest row would be chosen most.
        weight[:, :width] /= torch.linalg.vector_norm(weight[:, :width], dim=1, keepdim=True)
        weight[:, width:] = 0
    elif name.endswith("o_proj.weight"):
        weight[:width] = 0
    elif name.endswith("experts.down_proj"):
        weight[..., :width] = 0
    return weight
