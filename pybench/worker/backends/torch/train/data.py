"""The batch that every step trains on."""

from __future__ import annotations

import torch

from pybench.worker.backends.common_torch.tokens import sample_tokens
from pybench.worker.backends.torch.train.learner import Batch, Portion, Task
from pybench.worker.backends.torch.train.loss import IGNORED


def batches(task: Task, portion: Portion, vocab_size: int) -> list[Batch]:
    """This rank's passes of a step, on its device.

    Every step sees the same samples: what the model learns then shows in the loss at once, and ranks that don't learn
    together part ways. The joint batch is the same for every number of ranks and passes.
    """
    settings = task.settings
    size = settings.micro_batch_size
    first = portion.replica * size * settings.num_passes
    return [_batch(task, portion, first + number * size, vocab_size) for number in range(settings.num_passes)]


def _batch(task: Task, portion: Portion, first: int, vocab_size: int) -> Batch:
    settings, device = task.settings, task.ranks.device
    length = settings.sequence_tokens
    tokens = sample_tokens(first, settings.micro_batch_size, length, vocab_size, settings.seed)
    labels = torch.nn.functional.pad(tokens[:, 1:], (0, 1), value=IGNORED)
    positions = torch.arange(length)[None]
    parts = (part.chunk(portion.num_chunks, dim=1)[portion.chunk].to(device) for part in (tokens, labels, positions))
    return Batch(*parts)
