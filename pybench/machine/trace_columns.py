"""Traces from dictionaries of columns, as the native sampler hands them over."""

from __future__ import annotations

from typing import Any

from pybench.model.trace import PLANES, GpuTrace, OffsetColumns, PowerTrace


def trace_from_columns(values: dict[str, Any]) -> PowerTrace:
    """A trace from its fields: ``gpus`` a list of dictionaries, ``offsets`` and each plane a dictionary of columns."""
    offsets, gpus = OffsetColumns(**values["offsets"]), tuple(_gpu(gpu) for gpu in values["gpus"])
    return PowerTrace(**{**values, "offsets": offsets, "gpus": gpus})


def _gpu(values: dict[str, Any]) -> GpuTrace:
    planes = {plane: kind(**values[plane]) for plane, kind in PLANES.items()}
    return GpuTrace(**{**values, "capabilities": tuple(values["capabilities"]), **planes})
