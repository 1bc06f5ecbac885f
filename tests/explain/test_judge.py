"""Speedups judged by predictions, and kept results judged again."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from pybench.cli.exit_codes import BY_VERDICT
from pybench.cli.main import main
from pybench.explain.judge import judged_again
from pybench.explain.node import measured_node
from pybench.explain.predictions import WIDEST_BAND, predictions, steps_of_results
from pybench.files.run.results_file import read_results
from pybench.files.shipped import load_bands, shipped_suites
from pybench.model.manifest import Containment
from pybench.model.results import Estimate, Results
from pybench.model.verdict import PREDICTION
from pybench.report.run.results_json import render
from pybench.report.run.view import RunView

KEPT = shipped_suites() / "measured"
NODES = {
    "h100x2": "node_check-h100x2-20261125",
    "h100x4": "node_check-h100x4-20261126",
    "h200x2": "node_check-h200x2-20261124",
    "h200x4": "node_check-h200x4-20261126",
}
PIPELINE, NODE = KEPT / "pipeline_scaling_1f1b-h100x4-20261126.json", KEPT / f"{NODES['h100x4']}.json"


def _slower(results: Results, point_id: str, factor: float) -> Results:
    """The results with one point slowed by a factor."""

    def scaled(name: str, found: Estimate) -> Estimate:
        by = factor if found.unit == "s" else 1 / factor if found.unit.endswith("/s") else 1.0
        return dataclasses.replace(found, value=found.value * by, medians=tuple(v * by for v in found.medians))

    points = tuple(
        dataclasses.replace(point, metrics={name: scaled(name, found) for name, found in point.metrics.items()})
        if point.id == point_id
        else point
        for point in results.points
    )
    return dataclasses.replace(results, points=points)


def _with(results: Results, point_id: str, **values: float) -> Results:
    """The results with other values of some metrics of one point."""

    def replaced(name: str, found: Estimate) -> Estimate:
        value = values.get(name, found.value)
        return dataclasses.replace(found, value=value, medians=(value,) * len(found.medians))

    points = tuple(
        dataclasses.replace(point, metrics={name: replaced(name, found) for name, found in point.metrics.items()})
        if point.id == point_id
        else point
        for point in results.points
    )
    return dataclasses.replace(results, points=points)


@pytest.mark.parametrize(
    ("link", "rank", "host", "words"),
    [
        (1.0, 1.0, 1.0, None),
        (3.0, 1.0, 1.0, "communication takes 35.9 % of the step, predicted 10.3 %"),
        (1.0, 1.25, 1.0, "imbalance: the slowest GPU takes 25.0 % longer"),
        (1.0, 1.0, 1.25, "lower clocks or the host are left"),
    ],
    ids=["healthy", "a third of the bandwidth", "a rank 25 % slower", "a host that adds a quarter"],
)
def test_a_planted_fault_fails_with_its_part_named(link: float, rank: float, host: float, words: str | None) -> None:
    """In the kept steps of four H100s: DDP, of whose step 15.7 % is communication that nothing hides."""
    results, name = read_results(KEPT / "ddp_scaling-h100x4-20261126.json"), "weak[data_parallel=4]"
    (point,) = (point for point in results.points if point.id == name)
    exposed = point.metrics["exposed_communication_fraction"].value
    silent = (1 - exposed) * rank + host - 1
    factor = silent + exposed * link
    planted = _with(
        _slower(results, name, factor),
        name,
        exposed_communication_fraction=exposed * link / factor,
        straggler_gap_fraction=rank - 1,
    )
    judged = judged_again(planted, measured_node(NODE))
    (row,) = (row for row in judged.scaling if row.point_id == name and row.metric == "tokens_per_s")
    assert row.verdict == ("pass" if words is None else "fail")
    assert words is None or words in (row.reason or "")


def test_no_kept_speedup_of_a_healthy_machine_fails(tmp_path: Path) -> None:
    """Most speedups without a row of a table pass, and the output can be read again."""
    judged = []
    for path in sorted(KEPT.glob("*.json")):
        machine = re.search(r"-(h\d+x\d)-", path.name)
        if machine is None or machine[1] not in NODES or path.name.startswith("node_check"):
            continue
        results = judged_again(read_results(path), measured_node(KEPT / f"{NODES[machine[1]]}.json"))
        (tmp_path / path.name).write_text(render(RunView(results=results)))
        read_results(tmp_path / path.name)
        judged += [row for row in results.scaling if row.expected is not None and row.expected.table == PREDICTION]
    verdicts = [row.verdict for row in judged]
    assert "fail" not in verdicts
    assert verdicts.count("pass") >= 12
    assert verdicts.count("pass") >= 0.8 * len(verdicts)


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "pass"), (1.1, "inconclusive"), (1.4, "fail")])
def test_a_slow_speedup_fails_by_its_prediction(factor: float, verdict: str) -> None:
    """One attempt decides if it is clearly on one side; its reason names the spread of other runs."""
    slowed = "stages[schedule=1f1b,pipeline_parallel=4]"
    results = judged_again(_slower(read_results(PIPELINE), slowed, factor), measured_node(NODE))
    (row,) = (row for row in results.scaling if row.point_id == slowed and row.metric == "tokens_per_s")
    assert row.verdict == verdict
    assert row.expected is not None
    assert row.expected.predicted is not None
    assert row.expected.band_fraction == load_bands()["train pipeline_parallel"].fraction
    assert row.expected.minimum == pytest.approx(row.expected.predicted * (1 - row.expected.band_fraction))
    assert "node_check" in row.expected.source
    assert results.verdict == verdict


def test_a_pass_in_an_image_that_is_not_pinned_is_none() -> None:
    """The reason is that of today, also where another one was kept."""
    kept = read_results(PIPELINE)
    image = Containment(engine="docker", engine_version=None, images=("a:1",), pinned=False, relaxations=())
    provenance = dataclasses.replace(kept.provenance, containment=image)
    kept = dataclasses.replace(kept, reason="an old reason", provenance=provenance)
    results = judged_again(kept, measured_node(NODE))
    assert results.verdict == "inconclusive"
    assert results.reason == "every expectation passes, but in an image that isn't pinned"


def test_without_a_nodes_run_no_prediction_judges() -> None:
    """Only tables do."""
    results = judged_again(read_results(PIPELINE), None)
    assert {row.expected for row in results.scaling} == {None}
    assert results.verdict == "no_expectation"


def test_kinds_with_wide_bands_are_not_judged() -> None:
    """Tensor-parallel training missed its prediction by too much for a useful band."""
    assert load_bands()["train tensor_parallel"].fraction > WIDEST_BAND
    node = measured_node(KEPT / f"{NODES['h100x2']}.json")
    steps = steps_of_results(read_results(KEPT / "tensor_training_scaling-h100x2-20261126.json"))
    assert len(steps) > 1
    assert predictions(steps, node) == ()


def test_a_predicted_speedup_is_linear_at_most() -> None:
    """ZeRO's share of the update falls with the GPUs: 2.04 times the tokens/s of two GPUs is predicted for four."""
    steps = steps_of_results(read_results(KEPT / "deepspeed_scaling-h200x4-20261126.json"))
    (prediction,) = predictions(steps, measured_node(KEPT / f"{NODES['h200x4']}.json"))
    assert prediction.speedup == 2.0


def test_rates_of_another_gpu_judge_nothing() -> None:
    """A user who gives the run of another kind of GPU has no verdict at all; explain refuses it, too."""
    node = KEPT / f"{NODES['h200x2']}.json"
    done = CliRunner().invoke(main, ["judge", str(PIPELINE), "--node", str(node)])
    assert done.exit_code == 2
    assert done.output == (
        f"pybench: {node}: measured on h200, whose rates predict nothing of a run on h100; "
        "give a run of node_check on h100, or leave out --node\n"
    )


def test_a_run_without_rates_judges_nothing() -> None:
    """Results of a model, given as the node's."""
    done = CliRunner().invoke(main, ["judge", str(PIPELINE), "--node", str(PIPELINE)])
    reason = "it measured no rates of a node; give a run of node_check on h100"
    assert (done.exit_code, done.output) == (2, f"pybench: {PIPELINE}: {reason}\n")


def test_the_command_exits_with_the_verdict(tmp_path: Path) -> None:
    """As JSON and as text; its own output can be judged again, with the same result."""
    arguments = ["judge", str(PIPELINE), "--node", str(NODE)]
    done = CliRunner().invoke(main, [*arguments, "--format", "json"])
    assert done.exit_code == BY_VERDICT["pass"], done.output
    written = tmp_path / "results.json"
    written.write_text(done.output, encoding="utf-8")
    again = CliRunner().invoke(main, ["judge", str(written), "--node", str(NODE), "--format", "json"])
    assert json.loads(again.output) == json.loads(done.output)
    shown = CliRunner().invoke(main, arguments)
    assert shown.exit_code == 0
    assert "pass" in shown.output
