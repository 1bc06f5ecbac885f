"""The strategies by name."""

from __future__ import annotations

from importlib import import_module

from pybench.model.workloads.train_strategies import StrategyName
from pybench.worker.backends.torch.train.learner import Learner, Task
from pybench.worker.backends.torch.train.package import needs_package

_HERE = __name__.rpartition(".")[0]

# Imported only when a point asks for it: some need a package that not every image has.
MODULES: dict[StrategyName, str] = {
    "ddp": "ddp",
    "fsdp": "fsdp",
    "tensor_parallel": "tensor_parallel",
    "pipeline_parallel": "pipeline_parallel",
    "context_parallel": "context_parallel",
    "layer_split": "layer_split",
    "accelerate": "accelerate",
    "deepspeed": "deepspeed",
    "torchtune": "torchtune",
    "unsloth": "unsloth",
}


def learner(task: Task) -> Learner:
    """Build the learner of the task's strategy."""
    with needs_package("backend 'torch'", "torch"):
        module = import_module(f"{_HERE}.{MODULES[task.settings.strategy]}")
    built: Learner = module.learner(task)
    return built
