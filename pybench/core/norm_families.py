"""How families of models differ in their norms, by ``model_type``."""

from __future__ import annotations

FLOAT32_NORMS = frozenset(("gemma", "gemma2", "gemma3_text"))
"""Families whose norms multiply by the weight in float32."""
NORMS_OF_HEADS = frozenset(("qwen3", "gemma3_text"))
"""Families that normalise each head's queries and keys."""
NORMS_OF_OUTPUTS = frozenset(("gemma2", "gemma3_text"))
"""Families that normalise what attention and MLP give, besides what these read."""
