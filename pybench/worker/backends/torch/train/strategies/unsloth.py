"""Unsloth: its model and its fused loss, a replica on each rank, gradients averaged by DDP as its trainer does.

Weights, data and optimizer are the same in every strategy, so that the losses must be, too. On a CPU it falls back to
the library's own layers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch.nn import functional

from pybench.model.workloads.train import Train
from pybench.worker.backends.common_torch.memory import forget_peak
from pybench.worker.backends.common_torch.samples import IGNORED
from pybench.worker.backends.engine import config_folder
from pybench.worker.backends.torch.train.learner import Batch, Learner, Task
from pybench.worker.backends.torch.train.update import lora_options
from pybench.worker.imports import needs_package

# Read when it is imported. No downloads that count its users; and all weights are filled after it has loaded a
# checkpoint that lacks them. The code it generates lies in the working directory, which is the attempt's.
os.environ.setdefault("UNSLOTH_DISABLE_STATISTICS", "1")
os.environ["UNSLOTH_WARN_UNINITIALIZED"] = "0"

with needs_package("strategy 'unsloth'", "unsloth"):
    # Before anything that imports transformers or peft: it replaces parts of both.
    from unsloth import FastLanguageModel

    from pybench.worker.backends.torch.train.learner import WholeModel
    from pybench.worker.backends.torch.train.model import trainable_model
    from pybench.worker.backends.torch.train.strategies.ddp import replica_learner

# Before the names of a model with adapters.
_ADAPTED = "base_model.model."


def learner(task: Task) -> Learner:
    """Loaded, adapted and filled; a lone rank needs no wrapper."""
    settings = task.settings
    with loadable_folder(task) as folder:
        model, _tokenizer = FastLanguageModel.from_pretrained(**loading(task, folder))
    four_bits: Any = None
    if settings.weights == "nf4":
        with needs_package("weights = 'nf4'", "qlora"):
            from pybench.worker.backends.torch.train import nf4 as four_bits
        four_bits.mark_unpacked(model)
    if settings.lora_rank is not None:
        model = FastLanguageModel.get_peft_model(model, **adapting(settings))
    _fill(task, model, four_bits)
    model = FastLanguageModel.for_training(model, use_gradient_checkpointing=bool(checkpointing(settings)))
    return replica_learner(task, model, kind=Fast)


class Fast(WholeModel):
    """Unsloth's model. With labels it makes no logits and returns the mean loss over the labels."""

    def loss(self, batch: Batch) -> torch.Tensor:
        """Summed loss of a forward pass; a policy's needs logits."""
        if batch.advantages is not None:
            return super().loss(batch)
        # Models of transformers take labels at their own token.
        labels = functional.pad(batch.labels[:, :-1], (1, 0), value=IGNORED)
        mean: torch.Tensor = self._forward(batch, labels=labels).loss
        return mean * (batch.labels != IGNORED).sum()

    def logits(self, batch: Batch) -> torch.Tensor:
        """Logits of a forward pass without labels."""
        logits: torch.Tensor = self._forward(batch).logits
        return logits

    def exported(self, name: str, weight: torch.Tensor) -> tuple[str, torch.Tensor]:
        """The name without peft's prefix."""
        return name.removeprefix(_ADAPTED), weight

    def _forward(self, batch: Batch, **labels: torch.Tensor) -> Any:
        """A forward pass; 16-bit types run under autocast, as in Unsloth's trainer."""
        kind, dtype = batch.tokens.device.type, next(self.model.parameters()).dtype
        with torch.autocast(kind, dtype=dtype, enabled=dtype != torch.float32):
            return self.model(input_ids=batch.tokens, use_cache=False, **labels)


@torch.no_grad()
def _fill(task: Task, model: Any, four_bits: Any) -> None:
    """Give every weight the value that it has in every strategy, in memory of its own instead of a file's.

    Where it has four bits, these are packed from the value.
    """
    within = "" if task.settings.lora_rank is None else _ADAPTED
    _, weights = trainable_model(task)
    for name, weight in weights.named():
        place, _, leaf = f"{within}{name}".rpartition(".")
        module = model.get_submodule(place)
        empty = module.get_parameter(leaf)
        if four_bits is not None and isinstance(empty, four_bits.Params4bit):
            setattr(module, leaf, four_bits.packed(weight, empty))
        else:
            empty.data = weight
    if four_bits is not None:
        # Unsloth loads the model unpacked first, which is no part of a step's memory.
        forget_peak([task.ranks.device])


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
    return {**lora_options(settings), "use_gradient_checkpointing": checkpointing(settings)}


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
