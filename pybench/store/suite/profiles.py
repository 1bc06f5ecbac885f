"""What a profile changes in a benchmark."""

from __future__ import annotations

import dataclasses
from typing import Any

from pybench.model.effort import Effort
from pybench.model.workloads.registry import setting_names
from pybench.model.workloads.settings import WorkloadName

_EFFORT = {field.name for field in dataclasses.fields(Effort)}


def fields_of_workload(workload: WorkloadName) -> frozenset[str]:
    """Settings and effort fields that a benchmark of this workload may set."""
    return setting_names(workload) | _EFFORT


def tables_under(document: dict[str, Any], profile: str | None) -> list[dict[str, Any]]:
    """Every benchmark's table with ``[profile.NAME]``, then ``[profile.NAME.benchmark.BENCH]``, laid over it."""
    return [_under(document, table, profile) for table in document["benchmark"]]


def _under(document: dict[str, Any], table: dict[str, Any], profile: str | None) -> dict[str, Any]:
    if profile is None:
        return table
    whole = document["profile"][profile]
    own = whole.get("benchmark", {}).get(table["name"], {})
    return _lay(_lay(table, whole), own)


def is_omitted(document: dict[str, Any], table: dict[str, Any], profile: str | None) -> bool:
    """Whether the profile leaves this benchmark out."""
    if profile is None:
        return False
    own = document["profile"][profile].get("benchmark", {}).get(table["name"], {})
    return bool(own.get("omit", False))


def _lay(table: dict[str, Any], override: dict[str, Any]) -> dict[str, Any]:
    valid = fields_of_workload(table["workload"])
    axes = table.get("axes", {})
    changed = {name: values for name, values in override.get("axes", {}).items() if name in axes}
    values = {key: value for key, value in override.items() if key in valid}
    return {**table, **values, **({"axes": {**axes, **changed}} if axes else {})}
