"""Doubts about a node's run, as notes of an explanation."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from pathlib import Path

from pybench.core.verdict import ONE_ATTEMPT
from pybench.explain.node import measured_node, node_doubts
from pybench.model.results import Estimate, Results
from tests.builders import POINT_RESULT, RESULTS
from tests.golden_sentences import sentences_of
from tests.nodes import Node

SENTENCES = sentences_of("explain.node_doubts")

_WHEN = datetime(2026, 11, 27, tzinfo=UTC)
_KEPT = Path(__file__).parents[2] / "suites/measured"


def _results(**metrics: Estimate) -> Results:
    point = dataclasses.replace(POINT_RESULT, id="matmul", metrics=metrics)
    return dataclasses.replace(RESULTS, points=(point,), verdict="pass", reason="every expectation passes")


def _figure(low: float | None, high: float | None) -> Estimate:
    return Estimate(value=700e12, low=low, high=high, unit="FLOP/s")


def test_narrow_figures_raise_no_doubt() -> None:
    """Half of the interval is 4 % of the figure; a metric without a part in predictions may be wider."""
    other = Estimate(value=1.0, low=0.1, high=9.0, unit="J")
    results = _results(matmul_flops_per_s=_figure(675e12, 728e12), energy_j=other)
    assert list(node_doubts(results)) == []


def test_a_wide_figure_is_named_with_its_interval() -> None:
    results = _results(matmul_flops_per_s=_figure(600e12, 817e12))
    (doubt,) = node_doubts(results)
    named = "matmul_flops_per_s of matmul 700 TFLOP/s [600, 820]"
    assert doubt == f"figures of the node's run have wide intervals, and so have predictions: {named}"


def test_figures_of_one_attempt_are_named_once() -> None:
    """Also if the verdict has the same reason."""
    results = _results(matmul_flops_per_s=_figure(None, None))
    assert list(node_doubts(results)) == [SENTENCES["figures_of_one_attempt_are_named"]]
    undecided = dataclasses.replace(results, verdict="inconclusive", reason=f"matmul: {ONE_ATTEMPT}")
    assert list(node_doubts(undecided)) == [f"the node's run has the verdict inconclusive: matmul: {ONE_ATTEMPT}"]


def test_a_run_and_kept_results_have_their_doubts(tmp_path: Path) -> None:
    """A kept node check of one attempt a point, and a folder without second attempts."""
    (kept,) = measured_node(_KEPT / "node_check-h100x4-20261126.json").doubts
    assert kept.startswith("the node's run has the verdict inconclusive: matmul[backend=torch,gpus=4]: ")
    assert measured_node(Node(num_attempts=1, num_gpus=2).write(tmp_path, _WHEN)).doubts == (
        SENTENCES["a_run_and_kept_results_have_their"],
        SENTENCES["figures_of_one_attempt_are_named"],
    )
