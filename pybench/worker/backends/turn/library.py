"""A trainer's library that replaces parts of others, imported before the engine of its process."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module

from pybench.model.workloads.settings import Settings
from pybench.model.workloads.turn import Turn
from pybench.worker.backend import MissingPackageError

_UNSLOTH = "pybench.worker.backends.torch.train.strategies.unsloth"


def import_before_engine(settings: Settings) -> None:
    """Import Unsloth for a turn that trains by it, else nothing. What lacks a package is reported by the trainer.

    In standby Unsloth leaves torch's allocator as it is: its expandable segments are not compatible with an engine
    that sleeps (vLLM's allocator refuses them), and processes would inherit them.
    """
    if isinstance(settings, Turn) and settings.strategy == "unsloth":
        os.environ["UNSLOTH_VLLM_STANDBY"] = "1"
        with suppress(MissingPackageError):
            import_module(_UNSLOTH)
