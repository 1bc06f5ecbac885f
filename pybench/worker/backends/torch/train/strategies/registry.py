"""The strategies, a module each."""

from __future__ import annotations

from importlib import import_module

from pybench.worker.backends.torch.train.learner import Learner, Task
from pybench.worker.backends.torch.train.optimizer import update_with_all_cores
from pybench.worker.imports import needs_package, spared_by_collector

_HERE = __name__.rpartition(".")[0]


def learner(task: Task) -> Learner:
    """Build the learner of the task's strategy, whose module has its name.

    It is imported only now: some need a package that not every image has.
    """
    if task.settings.updates_on_host:
        update_with_all_cores(task.ranks, task.settings.nodes)
    with needs_package("backend 'torch'", "torch"), spared_by_collector():
        module = import_module(f"{_HERE}.{task.settings.strategy}")
    built: Learner = module.learner(task)
    return built
