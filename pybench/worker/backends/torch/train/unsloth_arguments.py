"""Unsloth's arguments: keywords for the settings, and a folder that it can load."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from pybench.model.workloads.train import Train, lora_shape
from pybench.worker.backends.engine.start import config_folder
from pybench.worker.backends.torch.train.learner import Task

_SPECIAL = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def loading(task: Task, folder: str) -> dict[str, Any]:
    """Keywords of ``FastLanguageModel.from_pretrained``: weights of ``dtype`` or four bits, on this rank's device."""
    settings = task.settings
    return {
        "model_name": folder,
        "max_seq_length": settings.sequence_tokens,
        "dtype": task.dtype,
        "load_in_4bit": settings.weights == "nf4",
        "full_finetuning": settings.lora_rank is None,
        "device_map": {"": str(task.ranks.device)},
        "use_gradient_checkpointing": checkpointing(settings),
        "use_exact_model_name": True,
    }


def adapting(settings: Train) -> dict[str, Any]:
    """Keywords of ``FastLanguageModel.get_peft_model``."""
    shape = lora_shape(settings)
    return {
        "r": shape.rank,
        "lora_alpha": shape.alpha,
        "target_modules": list(shape.targets),
        "lora_dropout": settings.lora_dropout or 0.0,
        "bias": "none",
        "use_gradient_checkpointing": checkpointing(settings),
    }


def checkpointing(settings: Train) -> bool | str:
    """``full`` is its own kind: each layer again in backward, the layers' inputs in host memory until then."""
    return "unsloth" if settings.activation_checkpointing == "full" else False


@contextmanager
def loadable_folder(task: Task) -> Iterator[str]:
    """A config, the tokenizer it insists on, and a checkpoint of one weight: all are filled after loading."""
    with config_folder(task.architecture, task.settings.dtype) as folder:
        words = {word: number for number, word in enumerate(_SPECIAL.values())}
        Tokenizer(WordLevel(words, unk_token="<unk>")).save(str(folder / "tokenizer.json"))  # noqa: S106 - a word
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **_SPECIAL}), encoding="utf-8"
        )
        norm = torch.ones(task.architecture["hidden_size"], dtype=task.dtype)
        save_file({"model.norm.weight": norm}, folder / "model.safetensors", metadata={"format": "pt"})
        yield str(folder)
