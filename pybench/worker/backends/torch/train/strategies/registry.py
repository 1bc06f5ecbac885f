"""The strategies by name."""

from __future__ import annotations

from importlib import import_module

from pybench.model.workloads.train_strategies import StrategyName
from pybench.worker.backends.torch.train.learner import Learner, Task

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
}


def learner(task: Task) -> Learner:
    """Build the learner of the task's strategy."""
    built: Learner = import_module(f"{_HERE}.{MODULES[task.settings.strategy]}").learner(task)
    return built
