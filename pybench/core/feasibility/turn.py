"""Why a turn can't run: its engine, its trainer, or what passes between them."""

from __future__ import annotations

from collections.abc import Iterator

from pybench.core.feasibility.generate import generate_reasons
from pybench.core.feasibility.train import train_reasons
from pybench.model.decoder_shape import DecoderShape
from pybench.model.devices import DeviceKind
from pybench.model.workloads.rules import GivenSettings
from pybench.model.workloads.turn import Turn
from pybench.model.workloads.turn_rules import turn_rules

_SPLIT_WEIGHTS_OF = ("llama", "qwen2", "qwen3")


def turn_reasons(settings: Turn, shape: DecoderShape, device: DeviceKind) -> Iterator[str]:
    """Every reason why the point can't run; the file's rules again, since a degree may be a word there."""
    broken = list(turn_rules(GivenSettings(settings.to_json(), {})))
    yield from (f"{breach.key}: {breach.message}" if breach.key else breach.message for breach in broken)
    yield from generate_reasons(settings.generation, device)
    if shape.model_type not in _SPLIT_WEIGHTS_OF:
        yield f"weights are handed over to {', '.join(_SPLIT_WEIGHTS_OF)} only, not {shape.model_type}"
    if settings.tensor_parallel > 1 and shape.tied_embeddings:
        ties = f"{settings.model} ties its head to its embedding, which the engine would split"
        yield f"{ties}: take a model with a head of its own, or one GPU"
    if not broken:
        yield from train_reasons(settings.training, shape, device)
