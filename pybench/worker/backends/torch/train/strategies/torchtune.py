"""torchtune: its own decoder, split and sharded as its recipes ``full_`` and ``lora_finetune_distributed`` do.

Weights, data, loss and optimizer are those of every strategy, so that the losses must be, too. Frozen weights of four
bits are torchao's, whose scales differ a little from those of bitsandbytes.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import parallelize_module

from pybench.worker.backends.torch.architecture import Weights, empty_model, weight_of
from pybench.worker.backends.torch.train.learner import Batch, Learner, Portion, Task, device_mesh
from pybench.worker.backends.torch.train.optimizer import optimizer_of
from pybench.worker.backends.torch.train.strategies.fsdp import everything_gathered
from pybench.worker.backends.torch.train.whole_model import WholeModel
from pybench.worker.imports import needs_package

with needs_package("strategy 'torchtune'", "torchtune"):
    from torchtune import modules, training
    from torchtune.models.llama3 import base_llama_tp_plan
    from torchtune.modules import peft

    from pybench.worker.backends.torch.train.tuned_decoder import adapters, decoder_of, packed, tuned, untuned


def learner(task: Task) -> Learner:
    """Tensor parallel first, then checkpointing, then FSDP2, then the weights: the recipe's order."""
    settings = task.settings
    mesh = device_mesh(task)
    source = empty_model(task.architecture, task.dtype)
    with training.set_default_dtype(task.dtype), torch.device("meta"):
        model = decoder_of(source.config, settings)
    if settings.lora_rank:
        peft.set_trainable_params(model, peft.get_adapter_params(model))
    if settings.compile:
        training.compile_model(model, verbose=False)
    if settings.tensor_parallel > 1:
        _split(model, mesh["tensor_parallel"])
    if settings.activation_checkpointing == "full":
        training.set_activation_checkpointing(model, auto_wrap_policy={modules.TransformerSelfAttentionLayer})
    sharded = settings.data_parallel > 1
    if sharded:
        _shard(task, model, mesh["data_parallel"])
    _fill(task, model, source)
    return Tuned(
        source.config,
        training.get_act_offloading_ctx_manager(model, bool(settings.activation_offload)),
        model.train(),
        optimizer_of(model.parameters(), settings),
        None,
        settings,
        portion=Portion(replica=mesh.get_local_rank("data_parallel")),
        averaged_over=settings.data_parallel,
        same_loss_on=settings.tensor_parallel,
        silent=partial(everything_gathered, model),
    )


class Tuned(WholeModel):
    """Its decoder takes tokens, knows no mask but the causal one, and returns logits.

    ``offloading`` is its own context of a forward pass whose activations go to host memory.
    """

    def __init__(self, config: Any, offloading: AbstractContextManager[Any], *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._config = config
        self._offloading = offloading

    def logits(self, batch: Batch) -> torch.Tensor:
        """Of a forward pass over whole sequences."""
        with self._offloading:
            found: torch.Tensor = self.model(batch.tokens)
        return found

    def exported(self, name: str, weight: torch.Tensor) -> tuple[str, torch.Tensor]:
        """By torchtune's own converters."""
        [found] = untuned(self._config, name, weight).items()
        return found


def _split(model: Any, mesh: DeviceMesh) -> None:
    training.prepare_mha_for_tp(model, mesh)
    parallelize_module(model, mesh, base_llama_tp_plan())  # qwen2's decoder has the same parts


def _shard(task: Task, model: Any, mesh: DeviceMesh) -> None:
    settings = task.settings
    training.shard_model(
        model=model,
        shard_conditions=[training.get_shard_conditions],
        cpu_offload=bool(settings.cpu_offload),
        reshard_after_forward=settings.reshard_after_forward is not False,
        dp_mesh=mesh,
    )


@torch.no_grad()
def _fill(task: Task, model: Any, source: Any) -> None:
    """Weight by weight, so that no rank ever holds them all; four bits are packed from the values."""
    device, seed = task.ranks.device, task.settings.seed
    with training.set_default_dtype(task.dtype), device:
        for module in model.modules():
            if hasattr(module, "rope_init"):
                module.rope_init()
    for name, weight in Weights(source, device, seed).named():
        [(own, value)] = tuned(source.config, name, weight).items()
        _place(task, model, own, value)
    for name, own, meta in adapters(source.config, model):
        _place(task, model, own, weight_of(name, meta, device, seed))
    training.validate_no_params_on_meta_device(model)


def _place(task: Task, model: Any, name: str, value: torch.Tensor) -> None:
    """This rank's part of a weight; torchtune's loader does not pack a model that is not sharded."""
    settings = task.settings
    if task.ranks.world_size > 1:
        offloads = bool(settings.cpu_offload)
        training.load_from_full_model_state_dict(model, {name: value}, task.ranks.device, cpu_offload=offloads)
        return
    place, _, leaf = name.rpartition(".")
    module = model.get_submodule(place)
    setattr(module, leaf, packed(value, module.get_parameter(leaf)))
