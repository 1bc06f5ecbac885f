"""Exports, each read back by its consumer's own reader or held against its published contract."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_prometheus

from pybench.files.run.results_file import read_results
from pybench.model.errors import UsageError
from pybench.model.results import Estimate, NodeCheck, Results
from pybench.model.workloads.registry import METRICS
from pybench.report.export.comma_separated import csv_cell
from pybench.report.export.trackers import BIGGER, SMALLER
from pybench.report.formats import export, render
from pybench.report.run.headline import tracked
from pybench.report.run.view import RunView
from tests.report.conftest import HOSTILE
from tests.report.exports import BENCHER, GITHUB_BENCHMARK
from tests.report.kept import KEPT, ONE_OF_A_KIND

FINISHED = "2026-11-21T09:00:00+00:00"


def _finished(results: Results) -> RunView:
    found = dataclasses.replace(results.provenance, finished_utc=FINISHED)
    return RunView(results=dataclasses.replace(results, provenance=found))


@pytest.fixture(params=ONE_OF_A_KIND, ids=lambda path: path.stem)
def kept(request: pytest.FixtureRequest) -> RunView:
    """A run of a real machine."""
    return _finished(read_results(request.param))


def _hostile(results: Results) -> RunView:
    """Every text of the points that a file can hold is meant to break out of a format."""
    points = tuple(dataclasses.replace(p, id=f"{p.id}{HOSTILE}", axes={"a": HOSTILE}) for p in results.points)
    return _finished(dataclasses.replace(results, points=points, suite=HOSTILE, run_id=HOSTILE))


def _figures(view: RunView) -> dict[tuple[str, str], float]:
    points = view.results.points
    return {(point.id, name): found.value for point in points for name, found in point.metrics.items()}


def _declared(view: RunView) -> list[float]:
    """Figures of metrics that this version declares; a kept run may have metrics of an older one."""
    return [value for (_, name), value in _figures(view).items() if name in METRICS]


def test_openmetrics_is_read_by_both_parsers(kept: RunView) -> None:
    """Every figure once, no time on any, whole for OpenMetrics and for the textfile collector's older format."""
    text = render(kept, "openmetrics")
    assert text.endswith("# EOF\n")
    strict, textfile = list(read_openmetrics(text)), list(read_prometheus(text))
    samples = [sample for family in strict for sample in family.samples]
    assert {family.type for family in strict} == {"gauge"}
    assert all(sample.timestamp is None for sample in samples)
    assert len(samples) == sum(len(family.samples) for family in textfile)
    values = [s for s in samples if "point" in s.labels and not s.name.endswith(("_low", "_high"))]
    assert sorted(sample.value for sample in values) == sorted(_declared(kept))
    verdicts = {s.labels["verdict"]: s.value for s in samples if s.name == "pybench_verdict"}
    assert verdicts[kept.results.verdict] == 1
    assert sum(verdicts.values()) == 1
    (completed,) = [s.value for s in samples if s.name == "pybench_completion_timestamp_seconds"]
    assert completed == 1_795_251_600


def test_openmetrics_names_base_units() -> None:
    """``step_s`` is ``pybench_step_seconds``; the interval is beside it."""
    view = _finished(read_results(next(path for path in KEPT if path.stem == "tp_scaling-h200x4-20261121")))
    families = {family.name: family for family in read_openmetrics(render(view, "openmetrics"))}
    assert families["pybench_step_seconds"].unit == "seconds"
    low, high = families["pybench_step_seconds_low"].samples[0], families["pybench_step_seconds_high"].samples[0]
    assert low.value <= families["pybench_step_seconds"].samples[0].value <= high.value
    assert "pybench_output_tokens_per_second" in families
    assert not any(name.endswith(("_s", "_j", "_w")) for name in families)


def test_openmetrics_needs_the_completion_time(results: Results) -> None:
    """A file that stays where it is would look fresh forever."""
    with pytest.raises(UsageError, match="when it was completed is not recorded"):
        render(RunView(results=results), "openmetrics")
    wrong = dataclasses.replace(results.provenance, finished_utc="yesterday")
    with pytest.raises(UsageError, match="'yesterday' is no time"):
        render(RunView(results=dataclasses.replace(results, provenance=wrong)), "openmetrics")


def test_csv_has_a_line_for_each_metric(kept: RunView) -> None:
    """Read by Python's own reader, every figure with all its digits."""
    rows = list(csv.DictReader(io.StringIO(render(kept, "csv"))))
    found = {(row["point"], row["metric"]): float(row["value"]) for row in rows if row["metric"]}
    assert found == _figures(kept)
    assert {row["run_id"] for row in rows} == {kept.results.run_id}
    unmeasured = [row["point"] for row in rows if not row["metric"]]
    assert unmeasured == [point.id for point in kept.results.points if not point.metrics]


@pytest.mark.parametrize(
    ("value", "cell"),
    [("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"), ("-2+3", "'-2+3"), (-2.5, "-2.5"), (None, ""), ("TP 2", "TP 2")],
)
def test_text_is_no_formula_of_a_spreadsheet(value: object, cell: str) -> None:
    """Numbers stay numbers."""
    assert csv_cell(value) == cell


def test_csv_is_read_by_pandas(kept: RunView) -> None:
    """Numbers are numbers, and what is unknown is missing."""
    pandas = pytest.importorskip("pandas")
    table = pandas.read_csv(io.StringIO(render(kept, "csv")), comment=None)
    assert table["value"].dtype == float
    assert int(table["value"].notna().sum()) == sum(len(point.metrics) for point in kept.results.points)


def test_bencher_has_headline_and_judged_metrics_with_their_interval(kept: RunView) -> None:
    """As Bencher's reference describes it."""
    found = json.loads(render(kept, "bencher"))
    jsonschema.validate(found, BENCHER)
    for point in kept.results.points:
        for name, metric in tracked(kept.results, point).items():
            values = found[point.id][name.replace("_", "-")]
            assert (values["value"], values.get("lower_value"), values.get("upper_value")) == (
                metric.value,
                metric.low,
                metric.high,
            )


def test_github_benchmark_has_a_file_for_each_direction(kept: RunView, tmp_path: Path) -> None:
    """Throughput is better when bigger, times and joules when smaller; together they are what a tracker draws."""
    said = export(kept, "github-benchmark", tmp_path / "out")
    files = {name: json.loads((tmp_path / "out" / name).read_text()) for name in (BIGGER, SMALLER)}
    for entries in files.values():
        jsonschema.validate(entries, GITHUB_BENCHMARK)
    results = kept.results
    assert sum(map(len, files.values())) == sum(len(tracked(results, point)) for point in results.points)
    assert not any(entry["name"].endswith("_per_s") for entry in files[SMALLER])
    assert "customBiggerIsBetter" in said
    with pytest.raises(UsageError, match="cannot write the export"):
        export(kept, "github-benchmark", tmp_path / "out" / BIGGER)


def test_pytest_benchmark_keeps_hostile_text_as_text(results: Results) -> None:
    """JSON of one benchmark for each point with a step time; a single attempt has no spread."""
    time = Estimate(value=0.5, low=None, high=None, unit="s", medians=(0.5,))
    points = tuple(dataclasses.replace(p, metrics={"step_s": time}) for p in _hostile(results).results.points[:2])
    found = json.loads(render(RunView(results=dataclasses.replace(results, points=points)), "pytest-benchmark"))
    assert [entry["stats"]["stddev"] for entry in found["benchmarks"]] == [0.0, 0.0]
    assert all(entry["name"].isprintable() for entry in found["benchmarks"])


@pytest.mark.parametrize("name", ["csv", "openmetrics", "bencher"])
def test_text_from_outside_stays_text(results: Results, name: str) -> None:
    """No line, quote or label ends where its text wants it to."""
    text = render(_hostile(results), name)
    points = [point for point in results.points if point.metrics]
    if name == "csv":
        rows = list(csv.reader(io.StringIO(text)))
        assert {len(row) for row in rows} == {len(rows[0])}
        assert len(rows) == 1 + sum(max(1, len(point.metrics)) for point in results.points)
    elif name == "openmetrics":
        labelled = [s for family in read_openmetrics(text) for s in family.samples if "point" in s.labels]
        assert {sample.labels["point"].partition("]")[0] for sample in labelled} == {
            point.id.partition("]")[0] for point in points
        }
        assert all(math.isfinite(sample.value) for sample in labelled)
    else:
        assert len(json.loads(text)) == len(points)


def test_a_json_line_names_gpus_by_index(results: Results) -> None:
    """Of two that only disagree both; a link's both ends; each fault once, the gravest first."""
    first, second = "GPU 0 (GPU-a)", "GPU 1 (GPU-b)"
    check = NodeCheck(
        name="link", subject=f"{first} → {second}", point_id=None, value=-0.5, limit=-0.1, unit="fraction",
        verdict="fail", reason="slow",
    )  # fmt: skip
    wrong = dataclasses.replace(check, name="checksum", subject=f"{first}, {second}", unit="steps", value=6.0)
    text = render(RunView(results=dataclasses.replace(results, node=(check, wrong))), "json-line")
    line = json.loads(text)
    assert text.count("\n") == 1
    assert [(fault["part"], fault["kind"], fault["gpus"]) for fault in line["faults"]] == [
        ("GPU", "wrong_results", [0, 1]),
        ("link", "slow_link", [0, 1]),
    ]
    assert "disagree" in line["faults"][0]["text"]
    assert line["verdict"] == results.verdict
    assert all(finding["text"] for finding in line["findings"])
