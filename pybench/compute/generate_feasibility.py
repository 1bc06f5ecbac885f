"""What a backend can't do for generation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields

from pybench.model.backend import BACKENDS
from pybench.model.suite import DeviceKind
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.settings import PARALLEL_AXES

# Settings of generation that some backends have no way to honour.
_OPTIONS = {
    field.name: field.default if field.default_factory is MISSING else field.default_factory()
    for field in fields(Generate)
    if field.name in {option for traits in BACKENDS.values() for option in traits.options}
}


def generate_reasons(settings: Generate, device: DeviceKind) -> Iterator[str]:
    """Every setting that the backend can't honour here."""
    able = BACKENDS[settings.backend].options
    for name, default in _OPTIONS.items():
        if getattr(settings, name) != default and name not in able:
            yield f"backend {settings.backend} has no {name}"
    if settings.concurrency is not None and settings.concurrency % settings.data_parallel:
        yield f"concurrency {settings.concurrency} can't be split over data_parallel {settings.data_parallel}"
    above_one = [axis for axis in PARALLEL_AXES if getattr(settings, axis) > 1]
    if settings.backend == "transformers" and "tensor_parallel" in above_one and len(above_one) > 1:
        yield f"backend transformers has tensor_parallel alone, not with {above_one[1]}"
    if settings.backend == "transformers" and device == "cpu" and settings.pipeline_parallel > 1:
        yield "backend transformers spreads layers over GPUs only"
