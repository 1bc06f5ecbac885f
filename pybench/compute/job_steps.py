"""How many steps a whole training job has."""

from __future__ import annotations

import math

from pybench.model.job import Job


def job_steps(job: Job, samples_of_step: int) -> int:
    """Steps of all epochs: an epoch's samples over those of a step, the last step of an epoch counted whole.

    ``samples_of_step`` is the effective batch as it was measured: an ``auto`` batch size is not known before. Every
    sample takes a sequence of its own, padded to ``sequence_tokens``.
    """
    return job.epochs * math.ceil(job.samples / samples_of_step)
