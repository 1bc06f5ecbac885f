"""A model from its shape, spread over GPUs the library's way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
from transformers import AutoConfig, BitsAndBytesConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from pybench.model.backend import BACKENDS
from pybench.model.workloads.generate import Generate
from pybench.worker.backend import UnsupportedError
from pybench.worker.seeds import WEIGHT_STD, weight_seed

# A block of this size, repeated: drawing every number of a large model would take minutes on a CPU.
_BLOCK = 2**20


def state_dict(kind: Any, config: Any, dtype: torch.dtype, seed: int) -> dict[str, torch.Tensor]:
    """Every weight of model class ``kind``, on the CPU, seeded by seed and name: the same on every rank."""
    return dict(named_weights(kind, config, dtype, seed))


def named_weights(kind: Any, config: Any, dtype: torch.dtype, seed: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Each of them by its name, made when its turn comes; tied ones once."""
    with torch.device("meta"):
        shapes = {name: weight.shape for name, weight in kind(config).named_parameters()}
    norm = 0.0 if config.model_type.startswith("gemma") else 1.0  # Gemma's norms multiply by 1 + weight
    for name, shape in shapes.items():
        yield name, _weight(name, shape, dtype, seed, norm)


def _weight(name: str, shape: torch.Size, dtype: torch.dtype, seed: int, norm: float) -> torch.Tensor:
    """``norm`` for norms, 0 for biases, else normal with ``WEIGHT_STD``."""
    if name.endswith("norm.weight"):
        return torch.full(shape, norm, dtype=dtype)
    if name.endswith("bias"):
        return torch.zeros(shape, dtype=dtype)
    generator = torch.Generator().manual_seed(weight_seed(seed, name))
    count = shape.numel()
    block = torch.empty(min(count, _BLOCK), dtype=dtype).normal_(0.0, WEIGHT_STD, generator=generator)
    return block.repeat(-(-count // len(block)))[:count].view(shape)


FAMILIES = BACKENDS["transformers"].model_types
_LAYER = re.compile(r".*\blayers\.\d+\.")


def build_model(architecture: dict[str, Any], settings: Generate, device: torch.device) -> Any:
    """Model with random weights, loaded by the library.

    ``tensor_parallel`` above 1 splits every layer by ``tp_plan="auto"``, ``pipeline_parallel`` spreads the layers by
    ``device_map``; else all of it is on ``device``. Raises :class:`UnsupportedError` for an unknown family.
    """
    family = architecture.get("model_type")
    if family not in FAMILIES:
        raise UnsupportedError(f"model_type {family!r}: the transformers backend knows {', '.join(FAMILIES)}")
    config = AutoConfig.for_model(family, **{key: v for key, v in architecture.items() if key != "model_type"})
    # Sequences end by their length: looking for an end token is work on the whole vocabulary in each round.
    config.eos_token_id = None
    kind: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    dtype = getattr(torch, settings.dtype)
    weights = state_dict(kind, config, dtype, settings.seed)
    options = {**_placement(settings, device), **_quantization(settings, dtype)}
    if getattr(config, "attn_logit_softcapping", None):  # Gemma 2: the library's call of torch's kernel lacks the cap
        options["attn_implementation"] = "eager"
    model = kind.from_pretrained(None, config=config, state_dict=weights, dtype=dtype, **options)
    return model.eval()


def layers_by_gpu(model: Any, num_gpus: int) -> dict[int, int]:
    """Number of layers on each of the model's GPUs, by the GPU's number in this process.

    Read from the weights: the library keeps its map only of a model that it spread over several devices. A layer that
    it left in host memory is on none.
    """
    places: dict[str, torch.device] = {}
    for name, weight in model.named_parameters():
        if layer := _LAYER.match(name):
            places.setdefault(layer[0], weight.device)
    on_gpus = [place.index for place in places.values() if place.type == "cuda"]
    return {gpu: on_gpus.count(gpu) for gpu in range(num_gpus)}


def _quantization(settings: Generate, dtype: torch.dtype) -> dict[str, Any]:
    """Four bits (NF4) by bitsandbytes for all linear layers but the head, which compute in ``dtype``."""
    if settings.quantization is None:
        return {}
    configure: Any = BitsAndBytesConfig  # untyped
    return {
        "quantization_config": configure(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
    }


def _placement(settings: Generate, device: torch.device) -> dict[str, Any]:
    if settings.tensor_parallel > 1:
        return _tensor_parallel()
    if settings.pipeline_parallel == 1:
        return {"device_map": {"": device}}
    return {"device_map": settings.device_map}


def _tensor_parallel() -> dict[str, Any]:
    """The plan, by its name in this version."""
    try:
        from transformers.distributed.configuration_utils import DistributedConfig

        return {"distributed_config": DistributedConfig(tp_plan="auto")}
    except (ImportError, TypeError):
        return {"tp_plan": "auto"}
