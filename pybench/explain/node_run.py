"""Reading a node's run, from its folder or from a kept ``results.json``, and doubts about its figures."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import MISSING, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from pybench.core.assemble import assemble
from pybench.core.measurements import Measurements
from pybench.core.numbers import quantity_with_interval, spread
from pybench.core.verdict import ONE_ATTEMPT
from pybench.explain.node import NODE_METRICS, MeasuredNode
from pybench.files.reader import first_fault
from pybench.files.run.earlier_runs import earlier_runs
from pybench.files.run.folder import RunFolder
from pybench.files.run.results_file import read_results
from pybench.files.suite.schema import fields_of
from pybench.model.errors import RunFolderError
from pybench.model.limits import LARGEST
from pybench.model.results import Estimate, PointResult, Results
from pybench.model.text import abridged, plural
from pybench.model.workloads.matmul import Matmul
from pybench.model.workloads.registry import METRICS_OF, NODE_WORKLOADS, SETTINGS_OF, setting_names
from pybench.model.workloads.settings import WorkloadName
from pybench.model.workloads.traits import NodeSettings

_MOST_RUNS = 200
"""Runs in the same folder that are searched, the newest first."""
_DAMAGED = "the file was edited or damaged"
_WIDE = 0.05
"""Half of an interval over the value; most predictions have a smaller error."""
_MOST_NAMED = 3


def measured_node(path: Path) -> MeasuredNode:
    """The node's run of a folder or of a file. Raises ``RunFolderError`` for content that no run writes."""
    if path.suffix == ".json" and not path.is_dir():
        results = read_results(path)
        node = MeasuredNode.of_results(results, _settings(path, results))
    else:
        folder = RunFolder.open(path)
        manifest = folder.read_manifest()
        measurements = Measurements.of(manifest.plan, folder.journal.records())
        node, results = MeasuredNode.of_run(manifest, measurements), assemble(manifest, measurements)
    return replace(node, doubts=tuple(node_doubts(results)))


def latest_node_run(run: Path, fingerprint: str) -> Path:
    """The newest run in the folder of ``run`` that measured products on a machine of the same fingerprint.

    Raises ``RunFolderError`` if none of the newest runs did.
    """
    path = run.resolve()
    for other, manifest in earlier_runs(path.parent, fingerprint, most=_MOST_RUNS, own=path):
        if any(isinstance(point.settings, Matmul) for point in manifest.plan.points):
            return other.path
    raise RunFolderError(
        f"{path.parent}: no run of node_check on the machine of {run.name}; make one with: pybench run "
        f"node_check --runs {shlex.quote(str(path.parent))}, or name one with --node"
    )


def _settings(path: Path, results: Results) -> dict[str, NodeSettings]:
    """Settings of the points that measured the node, by id."""
    measured = [(number, point) for number, point in enumerate(results.points) if point.status == "ok"]
    if measured and not any(point.settings for _, point in measured):
        raise RunFolderError(
            f"{path}: its points lack settings, which predictions need; write it again with:  "
            "pybench report RUN --format json -o FILE"
        )
    settings: dict[str, NodeSettings] = {}
    for number, point in measured:
        if point.settings.get("workload") in NODE_WORKLOADS:
            settings[point.id] = _checked(f"{path}: points.{number}", point)
    return settings


def _checked(place: str, point: PointResult) -> NodeSettings:
    workload: WorkloadName = point.settings["workload"]
    # ``None`` is the default of every setting that may have it.
    given = {name: value for name, value in point.settings.items() if name != "workload" and value is not None}
    try:
        _model(workload).model_validate(given)
    except ValidationError as error:
        raise RunFolderError(f"{place}.settings.{first_fault(error)}; {_DAMAGED}") from error
    for name in (name for name in NODE_METRICS if name in point.metrics):
        metric = METRICS_OF[workload].get(name)
        if metric is None or point.metrics[name].unit != metric.unit:
            raise RunFolderError(f"{place}.metrics.{name}: no metric of {workload} in that unit; {_DAMAGED}")
        if point.metrics[name].value < 1 / LARGEST:
            raise RunFolderError(f"{place}.metrics.{name}.value: smaller than any measurement; {_DAMAGED}")
    settings = SETTINGS_OF[workload](**given)
    assert isinstance(settings, NodeSettings), "of NODE_WORKLOADS"
    return settings


@cache
def _model(workload: WorkloadName) -> type[BaseModel]:
    """A checker of the settings in a file, which may omit defaults."""
    kind = SETTINGS_OF[workload]
    needed = {field.name for field in fields(kind) if field.default is field.default_factory is MISSING}
    types = ((name, note) for name, note in fields_of(kind).items() if name in setting_names(workload))
    wanted: dict[str, Any] = {name: (note, ... if name in needed else Field(default=None)) for name, note in types}
    return create_model(workload, __config__=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False), **wanted)


def node_doubts(results: Results) -> Iterator[str]:
    """Sentences about its verdict, wide intervals, and points measured once, which have no interval."""
    if results.verdict not in {"pass", "no_expectation"}:
        yield f"the node's run has the verdict {results.verdict}: {results.reason}"
    figures = [(point, name) for point in results.points for name in point.metrics if name in NODE_METRICS]
    wide = [
        f"{name} of {point.id} {quantity_with_interval(point.metrics[name])}"
        for point, name in figures
        if _is_wide(point.metrics[name])
    ]
    if wide:
        yield f"figures of the node's run have wide intervals, and so have predictions: {abridged(wide, _MOST_NAMED)}"
    points = {point.id for point, _ in figures}
    once = {point.id for point, name in figures if point.metrics[name].low is None}
    if once and ONE_ATTEMPT not in results.reason:
        of_all = "its points" if once == points else f"{len(once)} of its {plural(len(points), 'point')}"
        yield f"the node's run measured {of_all} once: how far these figures scatter is not known"


def _is_wide(estimate: Estimate) -> bool:
    half = spread(estimate.value, estimate.low, estimate.high)
    return half is not None and half > _WIDE * abs(estimate.value)
