"""Collectives on one tensor for each rank, by the names that torch has for them since 2.13, or had before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import distributed


def _named(name: str, before: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(distributed, name if hasattr(distributed, name) else before)
    return found


all_gather = _named("all_gather_single", "all_gather_into_tensor")
reduce_scatter = _named("reduce_scatter_single", "reduce_scatter_tensor")
