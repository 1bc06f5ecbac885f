"""Hugging Face Accelerate: its ``prepare`` wraps model and optimizer. Its launcher, too, would start torchrun."""

from __future__ import annotations

from functools import partial

from pybench.worker.backends.torch.train.learner import Learner, Portion, Task, WholeModel
from pybench.worker.backends.torch.train.model import compile_layers, trainable_model
from pybench.worker.backends.torch.train.strategies.ddp import release_first_bucket
from pybench.worker.backends.torch.train.update import optimizer_of
from pybench.worker.imports import needs_package

with needs_package("strategy 'accelerate'"):
    from accelerate import Accelerator

_PRECISION = {"bfloat16": "bf16"}


def learner(task: Task) -> Learner:
    """The model as Accelerate prepares it for the ranks of the environment."""
    settings = task.settings
    model, weights = trainable_model(task)
    weights.fill()
    compile_layers(task, model)
    precision = _PRECISION[settings.mixed_precision] if settings.mixed_precision else "no"
    accelerator = Accelerator(cpu=task.ranks.device.type == "cpu", mixed_precision=precision)
    prepared, optimizer = accelerator.prepare(model, optimizer_of(model.parameters(), settings))
    return WholeModel(
        task,
        prepared,
        optimizer,
        portion=Portion(replica=task.ranks.rank),
        averaged_over=task.ranks.world_size,
        quiet=lambda: accelerator.no_sync(prepared),
        differentiate=accelerator.backward,
        after_first_exchange=partial(release_first_bucket, task.ranks),
    )
