"""Memory traffic of adapters (LoRA), and of frozen weights that are unpacked from four bits.

An adapter of rank ``r`` at a projection of ``i`` inputs and ``o`` outputs, in numbers of ``e`` bytes, as peft 0.21
runs it. Its products read and write, forward, i + r and r + o; backward 2 i + 2 r and 2 o + 2 r, for gradients of
weights and inputs. Around them, kernel by kernel, forward: scaled (o, o), added to the projection's output (2 o, o);
backward: scaled (o, o), the two gradients of the input summed (2 i, i). Compiled, the scale and the sum are one kernel,
and the sum of gradients reads one more number. Dropout reads and writes the input and a byte of its mask.

Four bits (QLoRA, arXiv:2305.14314) by bitsandbytes: each pass over a projection unpacks its weight, which it reads in
four bits and writes in ``e`` bytes; peft then copies the output (o, o), since autograd may not change a view of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pybench.explain.comm_model.layer_bytes import LayerBytes

Sides = Sequence[tuple[int, int]]
"""Inputs and outputs of each projection of a layer that has an adapter."""


def adapter_products(sides: Sides, rank: int, element_bytes: int) -> LayerBytes:
    """Of a token in a layer: of the adapters' own products, whose weights are left out."""
    forward = sum(inputs + outputs + 2 * rank for inputs, outputs in sides)
    return LayerBytes(element_bytes * forward, 2 * element_bytes * forward)


def around_adapters(sides: Sides, element_bytes: int, *, fused: bool, packed: bool, dropped: bool) -> LayerBytes:
    """Of a token in a layer: of what joins adapters with their projections.

    ``packed``: these have four bits. ``dropped``: the adapters' inputs are.
    """
    inputs, outputs = (sum(numbers) for numbers in zip(*sides, strict=True))
    masked = (2 * element_bytes + 1) * inputs if dropped else 0
    copied = 2 * outputs if packed else 0
    return LayerBytes(
        element_bytes * ((3 if fused else 5) * outputs + copied) + masked,
        element_bytes * (2 * outputs + (1 if fused else 3) * inputs) + masked,
    )
