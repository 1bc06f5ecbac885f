"""The model that a strategy spreads: empty, with adapters and checkpointing in place."""

from __future__ import annotations

from typing import Any

from torch import nn

from pybench.worker.backend import UnsupportedError
from pybench.worker.backends.torch.architecture import Changed, Weights, empty_model, plain, unchanged
from pybench.worker.backends.torch.train.checkpointing import checkpoint_layers
from pybench.worker.backends.torch.train.learner import Task
from pybench.worker.backends.torch.train.loss import return_loss, whole_head_loss
from pybench.worker.backends.torch.train.package import needs_package


def trainable_model(task: Task, changed: Changed = unchanged) -> tuple[Any, Weights]:
    """The empty model in training mode, and what fills it, with values that are ``changed``."""
    settings = task.settings
    model = empty_model(task.architecture, task.dtype).train()
    make = plain
    if settings.weights == "nf4":
        with needs_package("weights = 'nf4'", "qlora"):
            from pybench.worker.backends.torch.train.nf4 import packed as make
            from pybench.worker.backends.torch.train.nf4 import use_four_bits
        use_four_bits(model, settings, task.dtype)
    if settings.lora_rank is not None:
        with needs_package("lora_rank"):
            from pybench.worker.backends.torch.train.lora import add_adapters
        add_adapters(model, settings, task.dtype)
    if settings.loss_chunk_tokens and not settings.splits_vocabulary:
        return_loss(model, whole_head_loss(model, settings), settings.loss_chunk_tokens)
    checkpoint_layers(model, settings.activation_checkpointing or "none", compiled=bool(settings.compile))
    return model, Weights(model, task.ranks.device, settings.seed, make, changed)


def layers_of(model: nn.Module) -> dict[str, nn.Module]:
    """The decoder layers by their full names."""
    return {f"model.layers.{name}": layer for name, layer in model.get_submodule("model.layers").named_children()}


def compile_layers(task: Task, model: nn.Module) -> None:
    """Compile each layer by itself: the layers are equal, so one compilation serves all."""
    if task.settings.compile:
        for layer in layers_of(model).values():
            layer.compile()


def refuse_tied(config: Any, strategy: str) -> None:
    """Raise :class:`UnsupportedError` where embedding and head are one weight, which a split would make two."""
    if config.tie_word_embeddings:
        raise UnsupportedError(f"{strategy} splits embedding and head, which this model ties to each other")
