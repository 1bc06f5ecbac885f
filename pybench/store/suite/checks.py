"""Rules that join several keys of a suite file whose keys are each valid."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pybench.model.workloads.registry import METRICS_OF, SETTINGS_OF, count_axes
from pybench.model.workloads.settings import ALL_GPUS
from pybench.store.suite.container import container_checks
from pybench.store.suite.profiles import fields_of_workload, is_omitted
from pybench.store.suite.train_checks import train_checks
from pybench.store.toml.lines import KeyPath
from pybench.store.toml.problem_text import did_you_mean

MAX_POINTS = 4096
Found = tuple[KeyPath, str]


def cross_checks(document: dict[str, Any], views: Mapping[str | None, Sequence[dict[str, Any]]]) -> list[Found]:
    """Check names, profiles, and every benchmark in each of ``views``: its tables by the profile laid over them.

    A problem that several views have is reported for the first of them.
    """
    container = ((("container", *path), message) for path, message in container_checks(document.get("container", {})))
    found = [*_names(document), *_profile_keys(document), *_others(document), *container]
    seen = {path for path, _ in found}
    for index in range(len(document["benchmark"])):
        for profile, tables in views.items():
            under = f" under profile {profile}" if profile else ""
            new = [(("benchmark", index, *path), message + under) for path, message in _benchmark(tables[index])]
            found += [(path, message) for path, message in new if path not in seen]
            seen |= {path for path, _ in new}
    return found


def _names(document: dict[str, Any]) -> Iterator[Found]:
    seen: set[str] = set()
    for index, table in enumerate(document["benchmark"]):
        # Names become folder names, and some file systems know no letter case.
        if table["name"].casefold() in seen:
            yield ("benchmark", index, "name"), f"{table['name']!r} is the name of an earlier benchmark"
        seen.add(table["name"].casefold())


def _profile_keys(document: dict[str, Any]) -> Iterator[Found]:
    benchmarks = document["benchmark"]
    names = [table["name"] for table in benchmarks]
    for profile, override in document.get("profile", {}).items():
        yield from _override(("profile", profile), override, benchmarks)
        if all(is_omitted(document, table, profile) for table in benchmarks):
            yield ("profile", profile, "benchmark"), "omits every benchmark; leave one, or remove the profile"
        for name, own in override.get("benchmark", {}).items():
            path = ("profile", profile, "benchmark", name)
            tables = [table for table in benchmarks if table["name"] == name]
            if not tables:
                yield path, f"no such benchmark{did_you_mean(name, names)}; valid are {', '.join(names)}"
            else:
                yield from _override(path, own, tables)


def _override(path: KeyPath, override: dict[str, Any], tables: list[dict[str, Any]]) -> Iterator[Found]:
    valid = set().union(*(fields_of_workload(table["workload"]) for table in tables))
    axes = {name for table in tables for name in table.get("axes", {})}
    for key in override:
        if key not in valid | {"axes", "benchmark", "omit"}:
            yield (*path, key), f"no benchmark here has this field; valid are {', '.join(sorted(valid))}"
    for key in override.get("axes", {}):
        if key not in axes:
            yield (
                (*path, "axes", key),
                f"no benchmark here has this axis; valid are {', '.join(sorted(axes)) or 'none'}",
            )


def _benchmark(table: dict[str, Any]) -> Iterator[Found]:
    axes = table.get("axes", {})
    kind = SETTINGS_OF[table["workload"]]
    for key in axes:
        if key in table:
            yield ("axes", key), "both fixed and an axis; keep one of the two"
    for field in dataclasses.fields(kind):
        required = field.default is field.default_factory is dataclasses.MISSING
        if required and field.name not in table and field.name not in axes:
            yield (field.name,), "missing, and it is required, as a value or an axis"
    yield from _effort(table)
    yield from _all_gpus(table)
    if table["workload"] == "train":
        yield from train_checks(table)
    if table["workload"] == "generate":
        yield from _arrivals(table)
    for index, expect in enumerate(table.get("expect", [])):
        for key, message in _expectation(expect, table):
            yield ("expect", index, *key), message


def _all_gpus(table: dict[str, Any]) -> Iterator[Found]:
    """What the other degrees leave is one number only where each of them is one."""
    axes = table.get("axes", {})
    degrees = {name: axes[name] for name in count_axes(table["workload"]) if name in axes}
    for name, values in degrees.items():
        several = [other for other, own in degrees.items() if other != name and (len(own) > 1 or ALL_GPUS in own)]
        if ALL_GPUS in values and several:
            yield ("axes", name), f"{ALL_GPUS!r} is what the other degrees leave: give {several[0]} one number"


def _effort(table: dict[str, Any]) -> Iterator[Found]:
    axes = table.get("axes", {})
    num_points = math.prod(len(values) for values in axes.values())
    if num_points > MAX_POINTS:
        yield ("axes",), f"expands to {num_points} points, at most {MAX_POINTS} are allowed"
    if "max_attempts" in table and table["max_attempts"] < table.get("attempts", 1):
        yield ("max_attempts",), f"{table['max_attempts']} is below attempts = {table['attempts']}"


def _arrivals(table: dict[str, Any]) -> Iterator[Found]:
    given = [key for key in ("concurrency", "request_rate_per_s") if key in table or key in table.get("axes", {})]
    if len(given) > 1:
        yield (), "needs at most one of concurrency (closed loop) and request_rate_per_s (open loop)"


_FORMS = (
    "needs either scaling, along and a table if there is one, or table alone, or minimum or maximum (or both), "
    "or one of below and above (with factor, or widening_along if it must widen), and not a mix"
)


def _expectation(expect: dict[str, Any], table: dict[str, Any]) -> Iterator[Found]:
    scaling = [key for key in ("scaling", "along", "table") if key in expect]
    limits = [key for key in ("minimum", "maximum") if key in expect]
    orders = [key for key in ("below", "above") if key in expect]
    if scaling == ["table"] and not (limits or orders or "baseline" in expect):
        return
    if "gpus" in expect:
        yield ("gpus",), "goes with table alone; remove it"
    kinds = [bool(scaling or "baseline" in expect), bool(limits), bool(orders)]
    whole = not scaling or {"scaling", "along"} <= set(scaling)
    if kinds.count(True) != 1 or not whole or len(orders) > 1:
        yield (), _FORMS
        return
    if len(limits) == 2 and expect["minimum"] > expect["maximum"]:  # noqa: PLR2004 - both limits
        yield ("minimum",), f"{expect['minimum']} is above maximum = {expect['maximum']}"
    if scaling:
        yield from _scaling(expect, table)
    if "factor" in expect and not orders:
        yield ("factor",), "goes with below or above; add one of them"
    if "widening_along" in expect:
        yield from _widening(expect, table, orders)


def _widening(expect: dict[str, Any], table: dict[str, Any], orders: Sequence[str]) -> Iterator[Found]:
    along = expect["widening_along"]
    values = table.get("axes", {}).get(along)
    if not orders:
        yield ("widening_along",), "goes with below or above; add one of them"
    elif values is None:
        yield ("widening_along",), f"{along} is no axis of this benchmark; add it to its axes"
    elif along == "gpus" or along.endswith("_parallel") or any(isinstance(value, str | bool) for value in values):
        yield ("widening_along",), f"{along} is no load: it must be an axis of numbers that multiplies no GPUs"


def _others(document: dict[str, Any]) -> Iterator[Found]:
    """Benchmarks that an order names must be there, be others, and have the metric."""
    workloads = {table["name"]: table["workload"] for table in document["benchmark"]}
    axes = {table["name"]: table.get("axes", {}) for table in document["benchmark"]}
    for index, table in enumerate(document["benchmark"]):
        for number, expect in enumerate(table.get("expect", [])):
            for key in ("below", "above"):
                other = expect.get(key)
                path = ("benchmark", index, "expect", number, key)
                if other is not None and (other not in workloads or other == table["name"]):
                    names = [name for name in workloads if name != table["name"]]
                    valid = ", ".join(names) or "none, the suite has no other"
                    yield path, f"found {other!r}, no other benchmark{did_you_mean(other, names)}; valid: {valid}"
                elif other is not None and expect.get("widening_along", "") not in {"", *axes[other]}:
                    yield path, f"{other!r} has no axis {expect['widening_along']}, along which the order must widen"
                elif other is not None and expect["metric"] not in METRICS_OF[workloads[other]]:
                    yield path, f"{other!r} has no metric {expect['metric']}"


def _scaling(expect: dict[str, Any], table: dict[str, Any]) -> Iterator[Found]:
    counts = table.get("axes", {}).get(expect["along"])
    if counts is None:
        yield ("along",), f"{expect['along']} is no axis of this benchmark; add it to its axes"
    elif "baseline" in expect and expect["baseline"] not in counts:
        yield ("baseline",), f"{expect['baseline']} is no value of axis {expect['along']}: {counts}"
    needed = "global_batch_size" if expect["scaling"] == "strong" else "batch_size_per_gpu"
    if table["workload"] == "train" and needed not in table and needed not in table.get("axes", {}):
        yield ("scaling",), f"{expect['scaling']} scaling of training needs {needed}"
    elif table["workload"] == "train" and expect["scaling"] == "weak" and expect["along"] != "data_parallel":
        yield ("along",), f"{expect['along']} adds no samples: weak scaling of training runs along data_parallel"
