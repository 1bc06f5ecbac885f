"""A suite document of valid shape as values."""

from __future__ import annotations

from typing import Any

from pybench.files.suite.container import container_request
from pybench.files.suite.expectations import expectation_of
from pybench.files.suite.own_files import OwnFiles
from pybench.files.suite.profiles import Fields, Profile, WrittenBenchmark, WrittenSuite
from pybench.model.effort import Effort
from pybench.model.workloads.registry import SETTINGS_OF

_FIELDS = frozenset(name for kind in (Effort, *SETTINGS_OF.values()) for name in kind.__dataclass_fields__)


def written_suite(document: dict[str, Any], files: OwnFiles) -> WrittenSuite:
    """Build it from a document that the schema and ``form_problems`` found no fault with, and its ``files``."""
    return WrittenSuite(
        name=document["name"],
        description=document.get("description", ""),
        benchmarks=tuple(_benchmark(table, files) for table in document["benchmark"]),
        profiles={name: _profile(table, files) for name, table in document.get("profile", {}).items()},
        container=container_request(document.get("container", {})),
        own_models=files.architectures,
    )


def _benchmark(table: dict[str, Any], files: OwnFiles) -> WrittenBenchmark:
    return WrittenBenchmark(
        name=table["name"],
        workload=table["workload"],
        fields=_fields(table, files),
        expectations=tuple(expectation_of(values) for values in table.get("expect", [])),
        required=table.get("required", False),
        round_up_batch=table.get("round_up_batch", False),
    )


def _profile(table: dict[str, Any], files: OwnFiles) -> Profile:
    benchmarks = {name: _fields(override, files) for name, override in table.get("benchmark", {}).items()}
    return Profile(everywhere=_fields(table, files), benchmarks=benchmarks)


def _fields(table: dict[str, Any], files: OwnFiles) -> Fields:
    return Fields(
        values={key: value for key, value in files.named(table).items() if key in _FIELDS and key != "workload"},
        axes={name: tuple(values) for name, values in files.named(table.get("axes", {})).items()},
        job=table.get("job", {}),
        omit=table.get("omit", False),
    )
