"""A model from its shape, spread over GPUs the library's way."""

from __future__ import annotations

import re
from typing import Any

import torch
from transformers import AutoConfig, BitsAndBytesConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from pybench.model.backend import BACKENDS
from pybench.model.workloads.generate import Generate
from pybench.worker.backend import UnsupportedError
from pybench.worker.backends.transformers.weights import state_dict

FAMILIES = BACKENDS["transformers"].model_types


def build_model(architecture: dict[str, Any], settings: Generate, device: torch.device) -> Any:
    """Model with random weights, loaded by the library.

    ``tensor_parallel`` above 1 splits every layer by ``tp_plan="auto"``, ``pipeline_parallel`` spreads the layers by
    ``device_map``; else all of it is on ``device``. Raises :class:`UnsupportedError` for a family that is not known.
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
    model = kind.from_pretrained(None, config=config, state_dict=weights, dtype=dtype, **options)
    return model.eval()


def layers_by_gpu(model: Any) -> dict[int, int]:
    """How many layers lie on each GPU that the model is spread over, by the GPU's number in this process.

    Every GPU from the first to the last that holds some; a layer that the library left in host memory is on none.
    """
    placed = {name: place for name, place in getattr(model, "hf_device_map", {}).items() if isinstance(place, int)}
    layers = [place for name, place in placed.items() if re.fullmatch(r"model\.layers\.\d+", name)]
    return {gpu: layers.count(gpu) for gpu in range(max(placed.values(), default=-1) + 1)}


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
    return {"device_map": settings.device_map if settings.pipeline_parallel > 1 else {"": device}}


def _tensor_parallel() -> dict[str, Any]:
    """The plan, by its name in this version."""
    try:
        from transformers.distributed.configuration_utils import DistributedConfig

        return {"distributed_config": DistributedConfig(tp_plan="auto")}
    except (ImportError, TypeError):
        return {"tp_plan": "auto"}
