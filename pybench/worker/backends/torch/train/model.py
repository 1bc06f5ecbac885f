"""The model that a strategy spreads: empty, with adapters and checkpointing in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from pybench.model.workloads.train import Train
from pybench.worker.backend import UnsupportedError
from pybench.worker.backends.torch.architecture import Changed, Weights, empty_model, plain
from pybench.worker.backends.torch.train.learner import Task
from pybench.worker.backends.torch.train.update import lora_options, loss_of, return_loss
from pybench.worker.imports import needs_package

# Phi 3 has several projections in one.
_FUSED = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv_proj"),
    **dict.fromkeys(("gate_proj", "up_proj"), "gate_up_proj"),
}


def add_adapters(model: nn.Module, settings: Train, dtype: torch.dtype) -> None:
    """Freeze the empty ``model`` and give its projections adapters in ``dtype``."""
    with needs_package("lora_rank"):
        from peft import LoraConfig, inject_adapter_in_model
    names = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    options = lora_options(settings)
    targets = dict.fromkeys(each if each in names else _FUSED.get(each, each) for each in options["target_modules"])
    inject_adapter_in_model(LoraConfig(**{**options, "target_modules": list(targets)}), model)
    for name, module in model.named_modules():
        if name.endswith((".lora_A", ".lora_B")):
            module.to(dtype)  # peft keeps adapters in float32, which a sharded layer can't mix with its weights


_ATEN = torch.ops.aten
# The costly ones: selective checkpointing keeps their results and computes only the cheap rest again.
_KEPT = [
    _ATEN.mm.default,
    _ATEN.addmm.default,
    _ATEN.bmm.default,
    _ATEN._scaled_dot_product_flash_attention.default,  # noqa: SLF001 - operators' names
    _ATEN._scaled_dot_product_efficient_attention.default,  # noqa: SLF001
    _ATEN._scaled_dot_product_cudnn_attention.default,  # noqa: SLF001
    _ATEN._scaled_dot_product_flash_attention_for_cpu.default,  # noqa: SLF001
]


def checkpoint_layers(model: Any, kind: Literal["none", "selective", "full"], *, compiled: bool = False) -> None:
    """Checkpoint every decoder layer of ``model``; ``compiled`` where layers are compiled afterwards."""
    if kind == "none":
        return
    options: dict[str, Any] = {"use_reentrant": False}
    if kind == "selective":
        options["context_fn"] = lambda: create_selective_checkpoint_contexts(_KEPT)  # type: ignore[no-untyped-call]
    if kind == "selective" and compiled:
        # From outside a compiled layer its matrix products can't be seen: inductor turns them into kernels of its own.
        for layer in model.model.layers:
            layer.forward = _checkpointed(layer.forward, options)
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)


def _checkpointed(forward: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    """``forward`` with its checkpoint inside, which compiling sees; a partial object would not be traced."""

    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, **options, **kwargs)

    return checkpointed


def trainable_model(task: Task, changed: Changed | None = None) -> tuple[Any, Weights]:
    """The empty model in training mode, and what fills it, with values that are ``changed``."""
    settings = task.settings
    model: Any = empty_model(task.architecture, task.dtype).train()
    make = plain
    if settings.weights == "nf4":
        with needs_package("weights = 'nf4'", "qlora"):
            from pybench.worker.backends.torch.train.nf4 import packed as make
            from pybench.worker.backends.torch.train.nf4 import use_four_bits
        use_four_bits(model, task.dtype)
    if settings.lora_rank is not None:
        add_adapters(model, settings, task.dtype)
    if settings.loss_chunk_tokens and not settings.splits_vocabulary:
        loss = loss_of(settings)  # with a head that this rank has whole
        chunk_tokens = settings.loss_chunk_tokens
        return_loss(model, lambda hidden, labels: loss(model.lm_head(hidden)[None], labels[None]), chunk_tokens)
    checkpoint_layers(model, settings.activation_checkpointing or "none", compiled=bool(settings.compile))
    return model, Weights(model, task.ranks.device, settings.seed, make, changed)


def layers_of(model: nn.Module) -> dict[str, nn.Module]:
    """The decoder layers by their full names."""
    return {f"model.layers.{name}": layer for name, layer in model.get_submodule("model.layers").named_children()}


def compile_layers(task: Task, model: nn.Module) -> None:
    """Compile each layer alone: the layers are equal, so one compilation serves all."""
    if task.settings.compile:
        for layer in layers_of(model).values():
            layer.compile()


def refuse_tied(config: Any, strategy: str) -> None:
    """Raise :class:`UnsupportedError` where embedding and head are one weight, which a split would make two."""
    if config.tie_word_embeddings:
        raise UnsupportedError(f"{strategy} splits embedding and head, which this model ties to each other")


def rounded(*, packed: bool) -> Changed | None:
    """The value of each weight after the trainer's four bits: with other values the engine would be another policy."""
    if not packed:
        return None
    with needs_package("weights = 'nf4'", "qlora"):
        from pybench.worker.backends.torch.train.nf4 import through_four_bits
    return through_four_bits
