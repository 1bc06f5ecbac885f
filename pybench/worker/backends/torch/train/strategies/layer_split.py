"""The naive pipeline: the layers in as many parts as ranks, the whole batch through one part after the other.

The same as ``device_map="auto"`` within one process, but with a process for each GPU: one GPU works at a time.
"""

from __future__ import annotations

from pybench.worker.backends.torch.train.learner import Learner, Task
from pybench.worker.backends.torch.train.strategies.pipeline_parallel import Pipeline


def learner(task: Task) -> Learner:
    """A pipeline of one microbatch."""
    return Pipeline(task, "gpipe", microbatches=1, stages_per_rank=1)
