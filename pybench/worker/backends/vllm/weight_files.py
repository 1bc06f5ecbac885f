"""Random 16-bit weights in a model's folder, for formats that vLLM quantises only at reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from pybench.model.workloads.generate import Generate
from pybench.worker.backends.transformers.model import named_weights

_FILE_BYTES = 2**32


def write_weights(
    folder: Path, architecture: dict[str, Any], settings: Generate, file_bytes: int = _FILE_BYTES
) -> None:
    """Files of about ``file_bytes`` with every weight of the config in ``folder``, by its name in transformers.

    Its loader for bitsandbytes (``vllm/model_executor/model_loader/bitsandbytes_loader.py``) takes all that lie there
    and packs the linear layers; its dummy weights have no packed form. They take as much disk as the model has bytes
    unpacked, until the engine ends.
    """
    config = AutoConfig.for_model(**architecture)
    kind: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    kept: dict[str, torch.Tensor] = {}
    number = 0
    for name, weight in named_weights(kind, config, getattr(torch, settings.dtype), settings.seed):
        kept[name] = weight
        if sum(tensor.nbytes for tensor in kept.values()) >= file_bytes:
            _save(folder, number, kept)
            number += 1
    if kept:
        _save(folder, number, kept)


def _save(folder: Path, number: int, kept: dict[str, torch.Tensor]) -> None:
    save_file(kept, folder / f"model-{number:05d}.safetensors", metadata={"format": "pt"})
    kept.clear()
