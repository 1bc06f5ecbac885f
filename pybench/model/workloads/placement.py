"""A table of a decoder's modules and the GPU of each, for transformers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pybench.model.text import abridged

_LAYERS = re.compile(r"model\.layers\.(\d+)(?:-(\d+))?")
_WHOLE = ("model", "model.embed_tokens", "model.layers", "model.norm", "lm_head")
_MOST_NAMES = 3


def name_problem(name: str) -> str | None:
    """Fault of a module's name in a table; ``None`` for a name that a decoder may have."""
    layers = _LAYERS.fullmatch(name)
    if name in _WHOLE or (layers and int(layers[1]) <= int(layers[2] or layers[1])):
        return None
    return f"{name!r} is none of {', '.join(_WHOLE)}, model.layers.N and model.layers.N-M (a layer stays whole)"


def modules(num_layers: int) -> tuple[str, ...]:
    """A decoder's own, in the order of its computation."""
    return ("model.embed_tokens", *(f"model.layers.{number}" for number in range(num_layers)), "model.norm", "lm_head")


def placed(table: Mapping[str, object], num_layers: int) -> dict[str, object]:
    """Entry of ``table`` for each module: by its name, else by the longest name of a module around it.

    Of several ranges of layers the shortest counts. A module that the table leaves out is not there.
    """
    found = {}
    for module in modules(num_layers):
        names = [name for name in table if _holds(name, module)]
        if names:
            found[module] = table[min(names, key=lambda name: _extent(name, num_layers))]
    return found


def unknown_layers(table: Mapping[str, object], num_layers: int) -> list[str]:
    """Names of layers that a decoder of so many does not have."""
    found = ((name, _LAYERS.fullmatch(name)) for name in table)
    return [name for name, layers in found if layers and int(layers[2] or layers[1]) >= num_layers]


def table_problem(table: Mapping[str, object]) -> str | None:
    """Fault of a table of modules for any model; ``None`` for nothing."""
    if not table:
        return "nothing in it: give modules and each one's GPU, such as { model = 0, lm_head = 1 }"
    problems = (name_problem(name) for name in table)
    return next((problem for problem in problems if problem), None) or _number_problem(table)


def placement_reasons(table: Mapping[str, int], num_gpus: int, num_layers: int, *, tied: bool) -> Iterator[str]:
    """Why a decoder can't lie on ``num_gpus`` GPUs as ``table`` has it; ``tied``: its head is its embedding."""
    where = placed(table, num_layers)
    if strange := unknown_layers(table, num_layers):
        yield f"device_map names {', '.join(strange)}, and the model has {num_layers} layers"
    if absent := [module for module in modules(num_layers) if module not in where]:
        yield f"device_map leaves out {abridged(absent, _MOST_NAMES)}"
    if beyond := sorted({gpu for gpu in table.values() if gpu >= num_gpus}):
        yield f"device_map names GPU {beyond[0]}, and pipeline_parallel {num_gpus} has 0 to {num_gpus - 1}"
    elif not absent and (idle := sorted(set(range(num_gpus)) - {*where.values()})):
        yield f"device_map leaves GPU {idle[0]} of pipeline_parallel {num_gpus} empty"
    if tied and where.get("lm_head") != where.get("model.embed_tokens"):
        yield "device_map parts lm_head from model.embed_tokens, which are one weight in this model"


def _number_problem(table: Mapping[str, object]) -> str | None:
    for name, value in table.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
            return f"{name!r} must be a whole number from 0, found {value!r}"
    return None


def _holds(name: str, module: str) -> bool:
    layers = _LAYERS.fullmatch(name)
    if layers and layers[2]:
        own = _LAYERS.fullmatch(module)
        return own is not None and int(layers[1]) <= int(own[1]) <= int(layers[2])
    return name in {"", module} or module.startswith(f"{name}.")


def _extent(name: str, num_layers: int) -> int:
    """How many modules a name stands for: the fewest decide."""
    return sum(_holds(name, module) for module in modules(num_layers))
