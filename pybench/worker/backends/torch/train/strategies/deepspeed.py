"""DeepSpeed ZeRO (arXiv:1910.02054): optimizer states, gradients, weights split, or offloaded."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch

from pybench.model.wire import Metric
from pybench.model.workloads.train import DEFAULT_STAGE, with_own_keys
from pybench.worker.backends.torch.attention import sequence_masks
from pybench.worker.backends.torch.train.learner import Batch, Learner, Portion, Task, device_mesh
from pybench.worker.backends.torch.train.model import compile_layers, trainable_model
from pybench.worker.backends.torch.train.update import WEIGHT_DECAY, loss_of
from pybench.worker.gpus import show_by_number, visible_gpus
from pybench.worker.imports import needs_package

with needs_package("strategy 'deepspeed'", "deepspeed"):
    import deepspeed
    from deepspeed.ops.op_builder import CPUAdamBuilder


def learner(task: Task) -> Learner:
    """The engine that DeepSpeed makes of the model; it brings its own optimizer."""
    device_mesh(task)  # DeepSpeed takes the process group that it finds, and wants torchrun's word even for a lone rank
    os.environ.setdefault("LOCAL_RANK", "0")
    if task.ranks.device.type == "cuda":
        # It takes the variable for NVML's numbers; CUDA has read it by now.
        show_by_number(visible_gpus())
    model, weights = trainable_model(task)
    weights.fill()
    compile_layers(task, model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    own_adam = bool(task.settings.offload_optimizer) and builds(CPUAdamBuilder())
    config = configuration(task, own_adam=own_adam)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=trained, config=config)
    return Zero(engine, task, model.config, own_adam=own_adam)


def builds(builder: Any) -> bool:
    """Whether an operation of DeepSpeed's compiles on this machine, or did before; the log has what is in the way."""
    try:
        builder.load(verbose=False)
    except Exception as error:  # noqa: BLE001 - no compiler, another CUDA than torch's, a failed build: all its own
        print(f"{builder.name} of DeepSpeed does not build: {error}", file=sys.stderr)  # noqa: T201 - the attempt's log
        return False
    return True


def configuration(task: Task, *, own_adam: bool) -> dict[str, Any]:
    """DeepSpeed's config for the settings, with the additions of the suite's file.

    ``own_adam``: its Adam for host memory updates, instead of torch's.
    """
    settings = task.settings
    zero: dict[str, Any] = {"stage": settings.zero_stage or DEFAULT_STAGE}
    offloads = {"offload_optimizer": settings.offload_optimizer, "offload_param": settings.offload_parameters}
    host = {"device": "cpu", "pin_memory": task.ranks.device.type == "cuda"}
    zero |= {name: {**host} for name, wanted in offloads.items() if wanted}
    params = {"lr": settings.learning_rate, "weight_decay": WEIGHT_DECAY, "torch_adam": not own_adam}
    decided = {
        "train_micro_batch_size_per_gpu": settings.micro_batch_size,
        "gradient_accumulation_steps": settings.num_passes,
        # On GPUs torch's AdamW: DeepSpeed's fused one is compiled on the machine, which takes CUDA's compiler.
        "optimizer": {"type": "AdamW", "params": params},
        "gradient_clipping": settings.max_grad_norm or 0.0,  # its own default clips at 1
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": zero,
        "bf16": {"enabled": settings.dtype == "bfloat16"},
        "fp16": {"enabled": settings.dtype == "float16"},
    }
    return with_own_keys(decided, settings.deepspeed_config or {})


class Zero(Learner):
    """The engine counts the passes itself, and divides by them and by the ranks."""

    def __init__(self, engine: Any, task: Task, config: Any, *, own_adam: bool) -> None:
        self._offloads, self._own_adam = bool(task.settings.offload_optimizer), own_adam
        self.portion = Portion(replica=task.ranks.rank)
        self.averaged_over = task.ranks.world_size * task.settings.num_passes
        self._engine, self.model = engine, engine.module
        self._loss = loss_of(task.settings)
        self._masks = sequence_masks(config, task.settings.sequence_tokens, task.ranks.device)

    def backward(self, batch: Batch, scale: float, *, last: bool) -> torch.Tensor:
        """Forward and backward through the engine."""
        logits = self._engine(
            input_ids=batch.tokens, attention_mask=self._masks, position_ids=batch.positions, use_cache=False
        ).logits
        loss = self._loss(logits, batch.labels)
        self._engine.backward(loss * scale)
        if not last:
            self._engine.step()
        return loss.detach()

    def update(self) -> None:
        """The engine's step at the last pass is the optimizer's."""
        self._engine.step()

    def metrics(self) -> tuple[Metric, ...]:
        """Whether torch's AdamW stands in for DeepSpeed's own in host memory."""
        if not self._offloads:
            return ()
        return (Metric(name="torch_adam_fallback", value=float(not self._own_adam), unit=""),)
