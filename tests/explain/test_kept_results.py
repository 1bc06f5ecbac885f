"""A node's run from its results.json instead of its folder."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pybench.core.measurements import Measurements
from pybench.core.provenance import worker_packages
from pybench.core.summary import summarize
from pybench.explain.explanation import explain
from pybench.explain.node import measured_node, node_rates
from pybench.model.errors import RunFolderError
from tests.build import Build
from tests.builders import RESULTS
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("explain.kept_results")

Edit = Callable[[dict[str, Any]], None]
SUITES = Path(__file__).parents[2] / "suites"


def kept(runs: Any, folder: Path, edit: Edit = lambda _: None) -> Path:
    """The results of the node's run as a file, after an edit of its values."""
    measured = runs.node_measurements
    made = dataclasses.replace(RESULTS.provenance, packages=worker_packages(measured.records), environment={})
    results = dataclasses.replace(
        RESULTS, run_id="node", fingerprint="f", provenance=made, points=summarize(measured), verdict="no_expectation"
    )
    values = json.loads(json.dumps(dataclasses.asdict(results)))
    edit(values)
    file = folder / "results.json"
    file.write_text(json.dumps(values))
    return file


def test_it_has_the_figures_of_the_slowest_gpu(runs: Any, tmp_path: Path) -> None:
    """All other rates are those of the run's records."""
    whole = node_rates(runs.measured_node, "bfloat16")
    rates = node_rates(measured_node(kept(runs, tmp_path)), "bfloat16")
    assert rates == dataclasses.replace(whole, gpus={})
    assert (rates.matmul_flops_per_s, rates.memory_bytes_per_s) == (540e12, 4.2e12)
    assert rates.collectives


def test_results_explain_a_run_with_a_caution(runs: Any, build: Build, tmp_path: Path) -> None:
    """The prediction is that of two GPUs like the slowest; a note has the reason."""
    times = [(build.generate(1), 0.16), (build.generate(2), 0.1)]
    run = runs.manifest(tuple(point for point, _ in times))
    records = [record for point, time_s in times for record in runs.measured(point, time_s)]
    measurements = Measurements.of(run.plan, records)
    assert explain(run, measurements, runs.measured_node).notes == ()
    explanation = explain(run, measurements, measured_node(kept(runs, tmp_path)))
    assert explanation.notes == (SENTENCES["results_explain_a_run_with_a_caution"],)
    assert explanation.node_run_id == "node"
    (point,) = explanation.points
    assert point.predicted_speedup is not None
    assert point.parts is not None
    assert point.parts["imbalance"] == 0.0


def _settings(point: int, **new: Any) -> Edit:
    return lambda values: values["points"][point]["settings"].update(new)


def _metric(point: int, name: str, **new: Any) -> Edit:
    return lambda values: values["points"][point]["metrics"][name].update(new)


def _without_settings(values: dict[str, Any]) -> None:
    for point in values["points"]:
        point["settings"] = {}


# The first point multiplies matrices, the sixth reduces 1 MiB.
EDITS: dict[str, tuple[Edit, str]] = {
    "no settings": (_without_settings, "its points lack settings, .* --format json -o FILE$"),
    "precision": (_settings(0, precision="int1"), r"points\.0\.settings\.precision: Input should be"),
    "unknown": (_settings(0, gpu="x"), r"points\.0\.settings\.gpu: Extra inputs"),
    "no backend": (lambda values: values["points"][0]["settings"].pop("backend"), r"settings\.backend: Field required"),
    "count": (_settings(0, gpus=0), r"points\.0\.settings\.gpus: .*greater than or equal to 1"),
    "size": (_settings(5, message_bytes="x"), r"points\.5\.settings\.message_bytes.*valid integer"),
    "zero": (_metric(0, "matmul_flops_per_s", value=0.0, low=None), r"matmul_flops_per_s\.value: smaller than any"),
    "negative": (
        _metric(5, "collective_s", value=-1.0, low=None),
        r"points\.5\.metrics\.collective_s\.value: smaller than any",
    ),
    "tiny": (_metric(5, "collective_s", value=1e-99, low=None), "smaller than any measurement"),
    "huge": (_metric(0, "matmul_flops_per_s", value=1e99), "larger than any measurement"),
    "unit": (_metric(0, "matmul_flops_per_s", unit="bytes/s"), "no metric of matmul in that unit"),
    "another's": (
        lambda values: values["points"][3]["metrics"].update(values["points"][0]["metrics"]),
        "no metric of memory_bandwidth",
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_file_is_refused(runs: Any, tmp_path: Path, name: str) -> None:
    """The error is one line with file and key."""
    edit, message = EDITS[name]
    file = kept(runs, tmp_path, edit)
    with pytest.raises(RunFolderError, match=message) as caught:
        measured_node(file)
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)


def test_results_kept_before_points_had_settings(tmp_path: Path) -> None:
    """The message has the next step."""
    file = SUITES / "measured" / "node_check-h200x4-20261121.json"
    with pytest.raises(RunFolderError, match="pybench report RUN --format json -o FILE"):
        measured_node(file)
