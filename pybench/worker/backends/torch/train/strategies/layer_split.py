"""The naive pipeline: the layers in as many parts as ranks, the whole batch through one part after the other.

What ``device_map="auto"`` does within one process, with a process for each GPU: at any time one of them works.
"""

from __future__ import annotations

from pybench.worker.backends.torch.train.learner import Learner, Task
from pybench.worker.backends.torch.train.strategies.pipeline_parallel import Pipeline


def learner(task: Task) -> Learner:
    """A pipeline of one microbatch."""
    return Pipeline(task, "gpipe", microbatches=1, stages_per_rank=1)
