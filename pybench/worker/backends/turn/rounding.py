"""Updates that a weight's type can't hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

# The optimizer rounds its moments after it used them: what is computed from them is off by so much.
_SLACK = 1.05


@torch.no_grad()
def is_rounded_away(
    weight: torch.Tensor,
    mean: torch.Tensor,
    square: torch.Tensor,
    state: Mapping[str, Any],
    options: Mapping[str, Any],
) -> bool:
    """Whether AdamW's last update (arXiv:1711.05101) of a weight is below half a step of its type everywhere.

    ``mean`` and ``square`` are the moments, ``state`` holds the number of updates, ``options`` rate, betas and decay. A
    weight without gradient, or whose update is 0 everywhere, was not trained. Towards zero, the step of a power of two
    is half as long.
    """
    if not weight.numel():
        return True
    update = _update(weight.float(), mean.float(), square.float(), float(state["step"]), options)
    mantissa, exponent = torch.frexp(weight.float())
    step = torch.ldexp(torch.full_like(mantissa, torch.finfo(weight.dtype).eps), exponent - 1)
    to_zero = (update * weight.float() > 0) & (mantissa.abs() == 0.5)  # noqa: PLR2004 - a power of two
    half = torch.where(to_zero, step / 4, step / 2)
    return bool((update.abs() <= half * _SLACK).all() and update.any() and mean.any())


def _update(
    weight: torch.Tensor, mean: torch.Tensor, square: torch.Tensor, count: float, options: Mapping[str, Any]
) -> torch.Tensor:
    """What was subtracted."""
    first, second = options["betas"]
    moved = mean / (1 - first**count)
    root = (square / (1 - second**count)).sqrt() + options["eps"]
    found: torch.Tensor = options["lr"] * (moved / root + options["weight_decay"] * weight)
    return found
