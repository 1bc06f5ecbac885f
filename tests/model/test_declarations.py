"""The declarations of workloads and backends match the worker's sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

import pybench
from pybench.model.backend import BACKENDS, MODEL_CLASSES
from pybench.model.workloads.registry import METRICS_OF, NODE_WORKLOADS, TRAITS_OF, WORKLOADS, AnySettings
from pybench.model.workloads.settings import BackendName
from pybench.model.workloads.traits import WorkloadTraits

WORKER = Path(pybench.__file__).parent / "worker"
_EXAMPLES: dict[str, Any] = {
    "backend": "torch",
    "model": "m",
    "batch_size": 8,
    "prompt_tokens": 3,
    "output_tokens": 5,
    "method": "loss",
    "topology": "shared",
    "sequence_tokens": 7,
    "global_batch_size": 8,
    "seed": 9,
}
FAKES = Path(__file__).parents[1]
SOURCES = (*sorted(WORKER.rglob("*.py")), FAKES / "run" / "fake_worker.py")


def _calls(name: str) -> Iterator[tuple[Path, ast.Call]]:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
                yield path, node


def _constants(call: ast.Call) -> dict[str, object]:
    return {k.arg: k.value.value for k in call.keywords if k.arg and isinstance(k.value, ast.Constant)}


def test_every_metric_that_a_worker_sends_is_declared_with_its_unit() -> None:
    """A misspelt name, or another unit, would otherwise be dropped in silence."""
    sent = [
        (path.name, values["name"], values["unit"])
        for path, call in _calls("Metric")
        if (values := _constants(call)).keys() >= {"name", "unit"}
    ]
    assert len(sent) >= 9
    for file, name, unit in sent:
        units = {traits.reported_unit(str(name)) for traits in WORKLOADS}
        assert unit in units, f"{file}: {name} in {unit!r}"


@pytest.mark.parametrize("workload", NODE_WORKLOADS)
def test_a_node_workload_measures_what_it_declares(workload: str) -> None:
    """Its class's ``measure`` returns declared names, its headline among them."""
    traits = TRAITS_OF[workload]
    names = set(_keys_of_measure(f"{traits.settings.__name__}Bench"))
    assert traits.headline in names
    assert {name for name in names if traits.reported_unit(name) is None} == set()
    reported = {name for name, metric in traits.metrics.items() if metric.over_ranks is not None}
    assert reported <= names


def _keys_of_measure(name: str) -> Iterator[str]:
    files = (WORKER / "backends" / "torch" / "node").glob("*.py")
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in files]
    (kind,) = (n for tree in trees for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    for node in ast.walk(kind):
        if isinstance(node, ast.FunctionDef) and node.name == "measure":
            for found in ast.walk(node):
                keys = (
                    found.keys
                    if isinstance(found, ast.Dict)
                    else [found.key]
                    if isinstance(found, ast.DictComp)
                    else []
                )
                for key in keys:
                    if isinstance(key, ast.Constant) and isinstance(key.value, str):
                        yield key.value
                    elif isinstance(key, ast.JoinedStr):
                        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "0" for part in key.values)


@pytest.mark.parametrize("traits", WORKLOADS, ids=lambda traits: traits.name)
def test_a_workload_declares_its_headline_among_its_metrics(traits: WorkloadTraits) -> None:
    """Reports show it first."""
    assert traits.headline in traits.metrics


def test_ranks_report_no_metric_of_the_hosts() -> None:
    """Joules, lengths of steps and throughput are the host's to compute, whatever a worker sends."""
    generate = TRAITS_OF["generate"]
    assert generate.reported_unit("itl_p99_s") == "s"
    assert generate.reported_unit("output_tokens_per_s") is None
    assert generate.reported_unit("energy_j") is None
    assert generate.reported_unit("outptu_tokens_per_s") is None
    assert TRAITS_OF["peer_copy"].reported_unit("link_to_31_bytes_per_s") == "bytes/s"
    assert generate.reported_unit("link_to_31_bytes_per_s") is None


def test_one_name_is_one_metric() -> None:
    """Workloads that share a metric's name agree on its unit and its better direction."""
    for metrics in METRICS_OF.values():
        for name, metric in metrics.items():
            for other in METRICS_OF.values():
                assert name not in other or (other[name].unit, other[name].higher_is_better) == (
                    metric.unit,
                    metric.higher_is_better,
                )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backends_traits_and_its_package_fit(backend: BackendName) -> None:
    """Its entry is found from its name; families and workloads are known ones."""
    traits = BACKENDS[backend]
    assert (WORKER / "backends" / backend / "entry.py").is_file()
    assert find_spec(f"pybench.worker.backends.{backend}") is not None
    assert set(traits.model_types) <= set(MODEL_CLASSES)
    assert set(traits.parallel_axes) <= set(TRAITS_OF)
    assert set(traits.warm_settings) | set(traits.bare_workloads) <= set(TRAITS_OF)
    assert set(traits.distributions) <= {package.replace("_", "-") for package in traits.all_packages}


@pytest.mark.parametrize("traits", WORKLOADS, ids=lambda traits: traits.name)
def test_settings_keep_their_class_when_a_manifest_is_read(traits: WorkloadTraits) -> None:
    """A reader that took a base class would drop the workload's own fields."""
    given = {field.name: _EXAMPLES[field.name] for field in fields(traits.settings) if field.name in _EXAMPLES}
    settings = traits.settings(workload=traits.name, **given)
    union = TypeAdapter(AnySettings)
    assert union.validate_python(settings.to_json()) == settings
