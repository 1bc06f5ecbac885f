"""How many steps a whole training job has."""

from __future__ import annotations

import math

from pybench.model.job import Job
from pybench.model.workloads.train import Train


def job_steps(job: Job, settings: Train, samples_of_step: int) -> int:
    """Steps of all epochs: an epoch's sequences over those of a step, the last step of an epoch counted whole.

    Packed, samples of their mean length fill every sequence; else each takes one of its own, padded to
    ``sequence_tokens``. ``samples_of_step`` is the effective batch as it was measured, in sequences: an ``auto`` batch
    size is not known before.
    """
    sequences = job.samples
    if settings.packing:
        sequences = math.ceil(job.samples * settings.mean_sample_tokens / settings.sequence_tokens)
    return job.epochs * math.ceil(sequences / samples_of_step)
