"""Tables of a suite file as benchmarks, and a profile laid over them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import fields, replace
from functools import cache
from typing import Any, get_args, get_type_hints

from pybench.files.toml_file import KeyProblem
from pybench.model.suite import Benchmark, Comparison, Effort, Expectation, Limits, Scaling, TableFigure, TrainingJob
from pybench.model.workloads.registry import SETTINGS_OF, setting_names
from pybench.model.workloads.settings import WorkloadName

Table = dict[str, Any]
"""A table of a suite file that the schema found no fault with."""
_EFFORT = {field.name for field in fields(Effort)}


def fields_of_workload(workload: WorkloadName) -> frozenset[str]:
    """Settings and effort fields that a benchmark of this workload may set."""
    return setting_names(workload) | _EFFORT


def benchmark_of(table: Table, profile: Table) -> Benchmark:
    """A ``[[benchmark]]`` with the profile's keys for all benchmarks, then those for this one, laid over its own."""
    valid = fields_of_workload(table["workload"])
    values = {key: value for key, value in table.items() if key in valid}
    axes, job = dict(table.get("axes", {})), dict(table.get("job", {}))
    for over in (profile, profile.get("benchmark", {}).get(table["name"], {})):
        values |= {key: value for key, value in over.items() if key in valid}
        axes |= {key: value for key, value in over.get("axes", {}).items() if key in axes}
        if job or "samples" in over.get("job", {}):
            job |= over.get("job", {})
    given = {key: _number(key, value) for key, value in values.items() if key in _EFFORT}
    effort = Effort(**given)
    most = effort.max_attempts if "max_attempts" in given else max(effort.attempts, effort.max_attempts)
    return Benchmark(
        name=table["name"],
        workload=table["workload"],
        settings={key: _number(key, value) for key, value in values.items() if key not in _EFFORT},
        axes={key: tuple(_number(key, value) for value in values) for key, values in axes.items()},
        effort=replace(effort, max_attempts=most),
        expectations=tuple(_expectation_of(expect) for expect in table.get("expect", [])),
        required=table.get("required", False),
        round_up_batch=table.get("round_up_batch", False),
        job=TrainingJob(**job) if job else None,
    )


def is_omitted(table: Table, profile: Table) -> bool:
    """Whether the profile leaves a benchmark out."""
    return bool(profile.get("benchmark", {}).get(table["name"], {}).get("omit"))


def _number(key: str, value: Any) -> Any:  # noqa: ANN401 - any TOML value
    return float(value) if key in _fractional() and isinstance(value, int) else value


@cache
def _fractional() -> frozenset[str]:
    """Settings and effort fields that may be written without a fraction, and are numbers with one all the same."""
    hints = [item for kind in (Effort, *SETTINGS_OF.values()) for item in get_type_hints(kind).items()]
    return frozenset(name for name, hint in hints if float in (hint, *get_args(hint)))


_FORMS = (
    "needs either scaling, along and a table if there is one, or table alone, or minimum or maximum (or both), "
    "or one of below and above (with factor, or widening_along if it must widen), and not a mix"
)


def form_problems(document: Table) -> Iterator[KeyProblem]:
    """Tables of expectations whose keys make no expectation."""
    for index, table in enumerate(document["benchmark"]):
        for number, expect in enumerate(table.get("expect", [])):
            for path, message in _problems(expect):
                yield ("benchmark", index, "expect", number, *path), message


def _problems(expect: Table) -> Iterator[KeyProblem]:
    scaling = [key for key in ("scaling", "along", "table") if key in expect]
    orders = [key for key in ("below", "above") if key in expect]
    forms = [bool(scaling or "baseline" in expect), bool({"minimum", "maximum"} & {*expect}), bool(orders)].count(True)
    is_table_alone = scaling == ["table"] and "baseline" not in expect
    is_whole = not scaling or is_table_alone or {"scaling", "along"} <= set(scaling)
    if "gpus" in expect and not (is_table_alone and forms == 1):
        yield ("gpus",), "goes with table alone; remove it"
    if forms != 1 or not is_whole or len(orders) > 1:
        yield (), _FORMS
    elif {"minimum", "maximum"} <= set(expect) and expect["minimum"] > expect["maximum"]:
        yield ("minimum",), f"{expect['minimum']:g} is above maximum = {expect['maximum']:g}"
    elif not orders:
        for key in [key for key in ("factor", "widening_along", "claim") if key in expect]:
            yield (key,), "goes with below or above; add one of them"
    elif {"claim", "widening_along", "factor"} <= set(expect):
        yield ("factor",), "has a claim of its own; remove it or widening_along"


def _expectation_of(table: Table) -> Expectation:
    """Build it from keys that ``form_problems`` found no fault with."""
    if "table" in table or "along" in table:
        return Scaling(**table) if "along" in table else TableFigure(**table)
    order = next((key for key in ("below", "above") if key in table), None)
    if order is None:
        return Limits(**table)
    rest = {key: value for key, value in table.items() if key != order}
    return Comparison(**{**rest, "order": order, "other": table[order]})


_BYTES_PER_GIB = 2**30
# A driver reports a little less than the card is sold with: 39.4 GiB of 40 GB.
_UNREPORTED = 1.05
# A profile for a kind and a memory is for cards of about that memory, not for their larger form.
_MUCH_MORE = 1.5


def profile_of(profiles: Collection[str], machine_kind: str, gpu_memory_bytes: float | None) -> str | None:
    """``a100-40gb``, else ``a100``, else the largest of ``40gb``, ``16gb`` … that fits; ``None`` for none."""
    memory_gb = 0.0 if gpu_memory_bytes is None else gpu_memory_bytes / _BYTES_PER_GIB * _UNREPORTED
    specific = _largest(profiles, f"{machine_kind}-", memory_gb)
    if specific and memory_gb < _MUCH_MORE * specific:
        return f"{machine_kind}-{specific}gb"
    if machine_kind in profiles:
        return machine_kind
    general = _largest(profiles, "", memory_gb)
    return f"{general}gb" if general else None


def _largest(profiles: Collection[str], prefix: str, memory_gb: float) -> int:
    """Greatest memory, in GB, of the profiles ``<prefix><memory>gb`` that is at most ``memory_gb``; 0 for none."""
    matches = (re.fullmatch(rf"{re.escape(prefix)}([0-9]{{1,4}})gb", name) for name in profiles)
    return max((size for match in matches if match and (size := int(match[1])) <= memory_gb), default=0)
