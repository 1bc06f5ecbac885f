"""torchtune: its own decoder, split and sharded as its recipe ``full_finetune_distributed`` does.

Weights, data, loss and optimizer are the same in every strategy, so that the losses must be, too.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.distributed.tensor.parallel import parallelize_module

from pybench.model.workloads.train import Train
from pybench.worker.backend import UnsupportedError
from pybench.worker.backends.torch.architecture import Weights, empty_model
from pybench.worker.backends.torch.train.learner import Batch, Learner, Portion, Task, WholeModel, device_mesh
from pybench.worker.backends.torch.train.model import refuse_tied
from pybench.worker.backends.torch.train.strategies.fsdp import everything_gathered
from pybench.worker.imports import needs_package

with needs_package("strategy 'torchtune'", "torchtune"):
    from torchtune import modules, training
    from torchtune.models.convert_weights import hf_to_tune, tune_to_hf
    from torchtune.models.llama3 import base_llama_tp_plan, llama3
    from torchtune.models.llama3_1 import llama3_1
    from torchtune.models.qwen2 import qwen2, qwen2_hf_to_tune, qwen2_tune_to_hf

# Traits of torchtune's layers, whatever the config has.
_FIXED = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "use_sliding_window": False}
# Its scaled positions (Llama 3.1), but for the factor.
_SCALED = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
# Into it and back.
_CONVERTERS = {"llama": (hf_to_tune, tune_to_hf), "qwen2": (qwen2_hf_to_tune, qwen2_tune_to_hf)}
# Within the name of a layer that backward computes again.
_RECOMPUTED = "_checkpoint_wrapped_module."


def decoder_of(config: Any, settings: Train) -> Any:
    """An equal decoder for the settings' samples; on the device and in the type of the caller's context.

    Raises :class:`UnsupportedError` where torchtune's builders can't express what the config has.
    """
    if config.model_type not in _CONVERTERS:
        raise UnsupportedError(f"strategy torchtune knows {', '.join(_CONVERTERS)}, not {config.model_type}")
    refuse_tied(config, "torchtune")
    fixed = {**_FIXED, "head_dim": config.hidden_size // config.num_attention_heads}
    for key, value in fixed.items():
        configured = getattr(config, key, value)
        if configured not in {value, None}:
            raise UnsupportedError(f"torchtune's {config.model_type} has {key} = {value}, this model {configured}")
    rope = config.rope_parameters
    kind, positions = rope["rope_type"], {"rope_base": rope["rope_theta"]}
    if kind == "default":
        build = qwen2 if config.model_type == "qwen2" else llama3
    elif config.model_type == "llama" and kind == "llama3" and all(rope[key] == _SCALED[key] for key in _SCALED):
        build, positions["scale_factor"] = llama3_1, rope["factor"]
    else:
        raise UnsupportedError(f"torchtune's {config.model_type} has no positions like {rope}")
    return build(
        vocab_size=config.vocab_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        embed_dim=config.hidden_size,
        intermediate_dim=config.intermediate_size,
        max_seq_len=settings.sequence_tokens,
        norm_eps=config.rms_norm_eps,
        **positions,
    )


def _converted(convert: Any, config: Any, name: str, weight: torch.Tensor) -> tuple[str, torch.Tensor]:
    """One weight under its other name; llama's queries and keys also have their rows in another order there."""
    heads = {"num_heads": config.num_attention_heads, "num_kv_heads": config.num_key_value_heads}
    [(other_name, converted)] = convert({name: weight}, dim=config.hidden_size, **heads).items()
    return other_name, converted


def learner(task: Task) -> Learner:
    """Tensor parallel first, then checkpointing, then FSDP2, then the weights: the recipe's order."""
    settings = task.settings
    mesh = device_mesh(task)
    source = empty_model(task.architecture, task.dtype)
    with training.set_default_dtype(task.dtype), torch.device("meta"):
        model = decoder_of(source.config, settings)
    if settings.compile:
        training.compile_model(model, verbose=False)
    if settings.tensor_parallel > 1:
        training.prepare_mha_for_tp(model, mesh["tensor_parallel"])
        # qwen2's decoder has the same parts
        parallelize_module(model, mesh["tensor_parallel"], base_llama_tp_plan())
    if settings.activation_checkpointing == "full":
        training.set_activation_checkpointing(model, auto_wrap_policy={modules.TransformerSelfAttentionLayer})
    if settings.data_parallel > 1:
        training.shard_model(
            model=model,
            shard_conditions=[training.get_shard_conditions],
            cpu_offload=bool(settings.cpu_offload),
            reshard_after_forward=settings.reshard_after_forward is not False,
            dp_mesh=mesh["data_parallel"],
        )
    _fill(task, model, source)
    return Tuned(
        task,
        model.train(),
        config=source.config,
        offloading=training.get_act_offloading_ctx_manager(model, bool(settings.activation_offload)),
        portion=Portion(replica=mesh.get_local_rank("data_parallel")),
        averaged_over=settings.data_parallel,
        same_loss_on=settings.tensor_parallel,
        silent=partial(everything_gathered, model),
    )


@dataclass(eq=False)
class Tuned(WholeModel):
    """Its decoder takes tokens, knows no mask but the causal one, and returns logits.

    ``offloading`` is its own context of a forward pass whose activations go to host memory.
    """

    config: Any = None
    offloading: AbstractContextManager[Any] = field(default_factory=nullcontext)

    def logits(self, batch: Batch) -> torch.Tensor:
        """Logits of a forward pass over whole sequences."""
        with self.offloading:
            logits: torch.Tensor = self.model(batch.tokens)
        return logits

    def exported(self, name: str, weight: torch.Tensor) -> tuple[str, torch.Tensor]:
        """Name and rows in transformers, by torchtune's converters."""
        back = _CONVERTERS[self.config.model_type][1]
        return _converted(back, self.config, name.replace(_RECOMPUTED, ""), weight)


@torch.no_grad()
def _fill(task: Task, model: Any, source: Any) -> None:
    """Weight by weight, so that no rank holds them all; torchtune's own loader takes only a sharded model."""
    device, seed = task.ranks.device, task.settings.seed
    with training.set_default_dtype(task.dtype), device:
        for module in model.modules():
            if hasattr(module, "rope_init"):
                module.rope_init()
    for name, weight in Weights(source, device, seed).named():
        into = _CONVERTERS[source.config.model_type][0]
        key, value = _converted(into, source.config, name, weight)
        if task.ranks.world_size > 1:
            offloads = bool(task.settings.cpu_offload)
            training.load_from_full_model_state_dict(model, {key: value}, device, cpu_offload=offloads)
        else:
            place, _, leaf = key.rpartition(".")
            setattr(model.get_submodule(place), leaf, torch.nn.Parameter(value))
    training.validate_no_params_on_meta_device(model)
