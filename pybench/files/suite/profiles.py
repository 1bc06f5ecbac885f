"""Tables of a suite file as values, and a profile laid over them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, get_args, get_type_hints

from pybench.files.suite.own_files import OwnFiles
from pybench.files.toml_file import KeyProblem
from pybench.model.container import ContainerRequest, Mount
from pybench.model.decoder_shape import Architecture
from pybench.model.suite import (
    AxisValue,
    Benchmark,
    Comparison,
    Effort,
    Expectation,
    Limits,
    Scaling,
    TableFigure,
    TrainingJob,
)
from pybench.model.workloads.registry import SETTINGS_OF, setting_names
from pybench.model.workloads.settings import WorkloadName

_EFFORT = {field.name for field in dataclasses.fields(Effort)}


def fields_of_workload(workload: WorkloadName) -> frozenset[str]:
    """Settings and effort fields that a benchmark of this workload may set."""
    return setting_names(workload) | _EFFORT


@dataclass(frozen=True, kw_only=True)
class Fields:
    """Settings, effort fields, axes and job that one table gives. A profile may also ``omit`` the benchmark."""

    values: dict[str, Any]
    axes: dict[str, tuple[AxisValue, ...]]
    job: dict[str, int] = field(default_factory=dict)
    omit: bool = False


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A ``[profile.NAME]`` table: fields for every benchmark that has them, and for single benchmarks by name."""

    everywhere: Fields
    benchmarks: dict[str, Fields]


@dataclass(frozen=True, kw_only=True)
class WrittenBenchmark:
    """A ``[[benchmark]]`` table, before any profile."""

    name: str
    workload: WorkloadName
    fields: Fields
    expectations: tuple[Expectation, ...]
    required: bool
    round_up_batch: bool

    def under(self, profile: Profile | None) -> Benchmark:
        """The benchmark with the profile's fields for all, then those for this one, laid over its own."""
        fields = self.fields
        for override in (profile.everywhere, profile.benchmarks.get(self.name)) if profile else ():
            fields = fields if override is None else _laid(fields, override, fields_of_workload(self.workload))
        given = {key: _number(key, value) for key, value in fields.values.items() if key in _EFFORT}
        effort = Effort(**given)
        most = effort.max_attempts if "max_attempts" in given else max(effort.attempts, effort.max_attempts)
        return Benchmark(
            name=self.name,
            workload=self.workload,
            settings={key: _number(key, value) for key, value in fields.values.items() if key not in _EFFORT},
            axes={key: tuple(_number(key, value) for value in values) for key, values in fields.axes.items()},
            effort=dataclasses.replace(effort, max_attempts=most),
            expectations=self.expectations,
            required=self.required,
            round_up_batch=self.round_up_batch,
            job=TrainingJob(**fields.job) if "samples" in fields.job else None,
        )

    def is_omitted(self, profile: Profile | None) -> bool:
        """Whether the profile leaves this benchmark out."""
        return profile is not None and self.name in profile.benchmarks and profile.benchmarks[self.name].omit


@dataclass(frozen=True, kw_only=True)
class WrittenSuite:
    """A whole suite file, its profiles beside its benchmarks."""

    name: str
    description: str
    benchmarks: tuple[WrittenBenchmark, ...]
    profiles: dict[str, Profile]
    container: ContainerRequest
    own_models: dict[str, Architecture] = field(default_factory=dict)

    def under(self, profile: str | None) -> tuple[Benchmark, ...]:
        """Every benchmark under the profile, also one that it omits."""
        override = None if profile is None else self.profiles[profile]
        return tuple(benchmark.under(override) for benchmark in self.benchmarks)


def _laid(fields: Fields, override: Fields, valid: frozenset[str]) -> Fields:
    values = {key: value for key, value in override.values.items() if key in valid}
    axes = {name: values for name, values in override.axes.items() if name in fields.axes}
    job = {**fields.job, **override.job} if fields.job or "samples" in override.job else {}
    return Fields(values={**fields.values, **values}, axes={**fields.axes, **axes}, job=job)


def _number(key: str, value: Any) -> Any:  # noqa: ANN401 - any TOML value
    return float(value) if key in _fractional() and isinstance(value, int) else value


@cache
def _fractional() -> frozenset[str]:
    """Settings and effort fields that may be written without a fraction, and are numbers with one all the same."""
    kinds = (Effort, *SETTINGS_OF.values())
    hints = [(name, hint) for kind in kinds for name, hint in get_type_hints(kind).items()]
    return frozenset(name for name, hint in hints if float in (hint, *get_args(hint)))


_FORMS = (
    "needs either scaling, along and a table if there is one, or table alone, or minimum or maximum (or both), "
    "or one of below and above (with factor, or widening_along if it must widen), and not a mix"
)


def form_problems(document: dict[str, Any]) -> Iterator[KeyProblem]:
    """Tables of expectations whose keys make no expectation."""
    for index, table in enumerate(document["benchmark"]):
        for number, expect in enumerate(table.get("expect", [])):
            for path, message in _problems(expect):
                yield ("benchmark", index, "expect", number, *path), message


def _problems(expect: dict[str, Any]) -> Iterator[KeyProblem]:
    scaling = [key for key in ("scaling", "along", "table") if key in expect]
    limits = [key for key in ("minimum", "maximum") if key in expect]
    orders = [key for key in ("below", "above") if key in expect]
    kinds = [bool(scaling or "baseline" in expect), bool(limits), bool(orders)]
    is_table_alone = scaling == ["table"] and "baseline" not in expect
    is_whole = not scaling or is_table_alone or {"scaling", "along"} <= set(scaling)
    if "gpus" in expect and not (is_table_alone and kinds.count(True) == 1):
        yield ("gpus",), "goes with table alone; remove it"
    if kinds.count(True) != 1 or not is_whole or len(orders) > 1:
        yield (), _FORMS
    elif not orders:
        for key in [key for key in ("factor", "widening_along", "claim") if key in expect]:
            yield (key,), "goes with below or above; add one of them"
    elif {"claim", "widening_along", "factor"} <= set(expect):
        yield ("factor",), "has a claim of its own; remove it or widening_along"


def expectation_of(table: dict[str, Any]) -> Expectation:
    """Build it from keys that ``form_problems`` found no fault with."""
    if "along" in table:
        return Scaling(**table)
    if "table" in table:
        return TableFigure(**table)
    order = next((key for key in ("below", "above") if key in table), None)
    if order is None:
        return Limits(**table)
    rest = {key: value for key, value in table.items() if key != order}
    return Comparison(**{**rest, "order": order, "other": table[order]})


_FIELDS = frozenset(name for kind in (Effort, *SETTINGS_OF.values()) for name in kind.__dataclass_fields__)


def written_suite(document: dict[str, Any], files: OwnFiles) -> WrittenSuite:
    """Build it from a document that the schema and ``form_problems`` found no fault with, and its ``files``."""
    container = document.get("container", {})
    return WrittenSuite(
        name=document["name"],
        description=document.get("description", ""),
        benchmarks=tuple(
            WrittenBenchmark(
                name=table["name"],
                workload=table["workload"],
                fields=_fields(table, files),
                expectations=tuple(expectation_of(values) for values in table.get("expect", [])),
                required=table.get("required", False),
                round_up_batch=table.get("round_up_batch", False),
            )
            for table in document["benchmark"]
        ),
        profiles={
            name: Profile(
                everywhere=_fields(table, files),
                benchmarks={key: _fields(override, files) for key, override in table.get("benchmark", {}).items()},
            )
            for name, table in document.get("profile", {}).items()
        },
        container=ContainerRequest(
            image=container.get("image"),
            mounts=tuple(Mount(**mount) for mount in container.get("mounts", [])),
            environment=dict(container.get("environment", {})),
            secrets=tuple(container.get("secrets", [])),
            relax=tuple(dict.fromkeys(container.get("relax", []))),
        ),
        own_models=files.architectures,
    )


def _fields(table: dict[str, Any], files: OwnFiles) -> Fields:
    return Fields(
        values={key: value for key, value in files.named(table).items() if key in _FIELDS and key != "workload"},
        axes={name: tuple(values) for name, values in files.named(table.get("axes", {})).items()},
        job=table.get("job", {}),
        omit=table.get("omit", False),
    )


_BYTES_PER_GIB = 2**30
# A driver reports a little less than the card is sold with: 39.4 GiB of 40 GB.
_UNREPORTED = 1.05
# A profile for a kind and a memory is for cards of about that memory, not for their larger form.
_MUCH_MORE = 1.5


def profile_of(profiles: Collection[str], machine_kind: str, gpu_memory_bytes: float | None) -> str | None:
    """``a100-40gb``, else ``a100``, else the largest of ``40gb``, ``16gb`` … that fits; ``None`` for none."""
    memory_gb = 0.0 if gpu_memory_bytes is None else gpu_memory_bytes / _BYTES_PER_GIB * _UNREPORTED
    own = _largest(profiles, f"{machine_kind}-", memory_gb)
    if own and memory_gb < _MUCH_MORE * own:
        return f"{machine_kind}-{own}gb"
    if machine_kind in profiles:
        return machine_kind
    general = _largest(profiles, "", memory_gb)
    return f"{general}gb" if general else None


def _largest(profiles: Collection[str], prefix: str, memory_gb: float) -> int:
    """Greatest memory, in GB, of the profiles ``<prefix><memory>gb`` that is at most ``memory_gb``; 0 for none."""
    found = (re.fullmatch(rf"{re.escape(prefix)}([0-9]{{1,4}})gb", name) for name in profiles)
    return max((size for match in found if match and (size := int(match[1])) <= memory_gb), default=0)
