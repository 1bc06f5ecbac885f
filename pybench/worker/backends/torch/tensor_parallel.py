"""Tensor parallelism after Megatron-LM (arXiv:1909.08053): split columns, then rows, then one sum for each block.

Weights are plain tensors and the collectives sit in forward hooks, so a decode round stays capturable in a CUDA graph
and pays no dispatch of its own. Inference only: the collectives have no backward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed, nn

from pybench.worker.backend import UnsupportedError

_COLUMNS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "lm_head")
_ROWS = ("o_proj", "down_proj")


@dataclass(frozen=True)
class Shard:
    """Part ``rank`` of ``size`` of every layer."""

    rank: int
    size: int

    def check(self, config: Any) -> None:  # noqa: ANN401 - the library's config
        """Raise :class:`UnsupportedError` when a split would not come out even."""
        for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size"):
            if getattr(config, name) % self.size:
                raise UnsupportedError(
                    f"tensor_parallel = {self.size} does not divide {name} = {getattr(config, name)}"
                )

    def part(self, name: str, weight: torch.Tensor) -> torch.Tensor:
        """This rank's part of the whole weight; the whole where every rank needs it."""
        layer, leaf = name.split(".")[-2:]
        if layer in _COLUMNS:
            return weight.chunk(self.size, dim=0)[self.rank].clone()
        if layer in _ROWS and leaf == "weight":
            return weight.chunk(self.size, dim=1)[self.rank].clone(memory_format=torch.contiguous_format)
        if layer in _ROWS and self.rank > 0:
            return weight.zero_()  # the sum over ranks must count a bias once
        return weight

    def connect(self, model: nn.Module) -> None:
        """Add the collectives; a head tied to the embedding becomes a view of its rows."""
        head: Any = model.get_submodule("lm_head")
        rows = head.weight.shape[0]
        if rows == model.config.vocab_size:  # type: ignore[union-attr]
            head.weight = nn.Parameter(head.weight.detach().chunk(self.size, dim=0)[self.rank], requires_grad=False)
        for name, module in model.named_modules():
            leaf = name.rsplit(".", 1)[-1]
            if leaf in _ROWS:
                module.register_forward_hook(_sum_over_ranks)
            elif leaf == "lm_head":
                module.register_forward_hook(self._gather_columns)

    def _gather_columns(self, _module: nn.Module, _inputs: Any, output: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
        parts = output.new_empty((self.size, *output.shape))
        distributed.all_gather_into_tensor(parts.flatten(0, 1), output.contiguous())
        return torch.cat(parts.unbind(0), dim=-1)


def _sum_over_ranks(_module: nn.Module, _inputs: Any, output: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
    output = output.contiguous()
    distributed.all_reduce(output)
    return output
