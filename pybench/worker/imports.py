"""Importing large libraries without the garbage collector's passes, a sixth of the time that it takes.

torch and transformers make 400,000 objects that live as long as the process; each pass looks at all of them.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module

from pybench.model.backend import install
from pybench.model.workloads.settings import Settings
from pybench.model.workloads.turn import Turn
from pybench.worker.backend import MissingPackageError

_UNSLOTH = "pybench.worker.backends.torch.train.strategies.unsloth"


def import_before_engine(settings: Settings) -> None:
    """Import Unsloth for a turn that trains by it, else nothing. What lacks a package is reported by the trainer.

    In standby Unsloth does not set expandable segments of torch's allocator: vLLM's allocator for an engine that sleeps
    refuses them.
    """
    if isinstance(settings, Turn) and settings.strategy == "unsloth":
        os.environ["UNSLOTH_VLLM_STANDBY"] = "1"
        with suppress(MissingPackageError):
            import_module(_UNSLOTH)


# The extras of pybench whose packages the image of containers/train has.
_IN_IMAGE = ("train", "deepspeed")
_BUILD = ", or build its image: pybench images build train"


@contextmanager
def needs_package(needed_by: str, extra: str = "train", remedy: str | None = None) -> Iterator[None]:
    """Turn a failed import into :class:`MissingPackageError`, which names what needs it and how to get it.

    The remedy is to install ``extra`` where no other is given.
    """
    remedy = remedy or f"{install(extra)}{_BUILD if extra in _IN_IMAGE else ''}"
    try:
        with without_collector():
            yield
    except ImportError as error:
        bottom = error  # some libraries report a failed import in words of their own
        while isinstance(bottom.__cause__, ImportError):
            bottom = bottom.__cause__
        raise MissingPackageError(
            f"{needed_by} needs the package {bottom.name or str(bottom)!r}, which the worker's Python can't import; "
            f"{remedy}"
        ) from error


@contextmanager
def without_collector() -> Iterator[None]:
    """Collect nothing while modules are imported."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def spared_by_collector() -> Iterator[None]:
    """Import without the collector, and freeze the modules' objects until the timing loop ends.

    Only where no model lives yet: what is frozen is not freed while it is part of a cycle. One pass over the new
    objects comes first: where an import failed and was caught, its traceback is such a cycle and holds the frames of
    all callers, with whatever they build afterwards. Frozen, it kept a whole model on the GPU.
    """
    num_modules = len(sys.modules)
    with without_collector():
        yield
        if len(sys.modules) > num_modules:
            gc.collect(0)
            gc.freeze()
