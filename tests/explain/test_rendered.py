"""An explanation as text."""

from __future__ import annotations

from typing import Any

from pybench.explain.text import render
from pybench.explain.values import ExplainedBaseline, ExplainedPoint, Explanation
from tests.build import Build


def test_the_report_marks_predictions(runs: Any, build: Build) -> None:
    """Every table, with the runs' names; a point without a prediction has its reason."""
    explanation = runs.explain(
        [(build.generate(1), 0.16), (build.generate(2), 0.1), (build.generate(4), 0.08)], fingerprint="g"
    )
    text = render(explanation, {})
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith("run, explained by node\n\nBaselines at the node's own rates\n")
    assert "\nNotes\n  decode[tensor_parallel=4]: not predicted: the node's run has no" in text
    assert "\n  the two runs are from" in text
    assert "1.600x" in text
    assert "unexplained" in text


def test_the_report_without_predictions(runs: Any, build: Build) -> None:
    """Empty tables are left out."""
    text = render(runs.explain([(build.generate(2), 0.1), (build.generate(4), 0.08)]), {}, width=200)
    assert "Measured and predicted" in text
    assert "and why" not in text


def test_tables_have_the_labels_of_points_that_are_given(runs: Any, build: Build) -> None:
    """A point without a label keeps its id; notes have ids."""
    one, two = build.generate(1), build.generate(2)
    text = render(runs.explain([(one, 0.16), (two, 0.1)]), {one.id: "TP 1", two.id: "TP 2"})
    rows = [line.split("  ")[0] for line in text.splitlines() if line.startswith(("TP ", "decode["))]
    assert rows == ["TP 1", "TP 2", "TP 2"]


def test_baselines_of_long_names_are_one_line_each() -> None:
    """80 columns hold every part and the share of the step."""
    nothing: Any = {"points": (), "notes": ()}
    baselines = tuple(
        ExplainedBaseline(
            point_id=name,
            num_gpus=4,
            measured_s=measured_s,
            parts={"compute": 0.5 * measured_s, "memory": 0.2345, "communication": 0.1234},
        )
        for name, measured_s in (("pipeline batch 256", 4.841), ("with_tensor_parallel", 1.309))
    )
    text = render(Explanation(run_id="r", node_run_id="n", baselines=baselines, **nothing), {})
    lines = text.splitlines()[2:]
    assert max(map(len, lines)) <= 80
    assert lines[:2] == ["Baselines at the node's own rates", "  all: memory 234.5 ms, comm. 123.4 ms"]
    rows = [line.split() for line in lines if "%" in line]
    assert [" ".join(row[-8:]) for row in rows] == [
        "4.841 s 2.421 s 2.063 s 57.4 %",
        "1.309 s 654.5 ms 296.6 ms 77.3 %",
    ]


def test_a_shortfall_has_its_parts_and_a_point_without_a_prediction_its_reason() -> None:
    """Measured and predicted speedups, and the parts of the time beyond the ideal: 2.5 s of an ideal 2 s."""
    explained = ExplainedPoint(
        point_id="decode[tensor_parallel=2]",
        baseline_id="decode[tensor_parallel=1]",
        num_gpus=2,
        measured_s=2.5,
        measured_speedup=1.6,
        predicted_s=2.45,
        predicted_speedup=1.63,
        shortfall_s=0.5,
        parts={"compute": 0.3, "memory": -0.1, "communication": 0.25, "rest": 0.05},
    )
    reason = "the node's run has no collective of 4 GPUs"
    unknown = ExplainedPoint(
        point_id="decode[tensor_parallel=4]", baseline_id="decode[tensor_parallel=1]", num_gpus=4, measured_s=1.0,
        measured_speedup=2.0, reason=reason,
    )  # fmt: skip
    baselines = (
        ExplainedBaseline(
            point_id="b", num_gpus=1, measured_s=2.0, parts={"compute": 1.5}, bound="decode is CPU bound"
        ),
        ExplainedBaseline(point_id="l", num_gpus=1, measured_s=3.0, reason="the model knows no LoRA"),
    )
    notes = ("other software",)
    explanation = Explanation(
        run_id="r", node_run_id="n", baselines=baselines, points=(explained, unknown), notes=notes
    )
    lines = render(explanation, {}, width=200).splitlines()
    assert [line.split()[1:] for line in lines if line.startswith("decode[tensor_parallel=2]")] == [
        ["2.5", "s", "2.45", "s", "1.600x", "1.630x", "+1.9", "%"],
        ["500", "ms", "300", "ms", "-100", "ms", "250", "ms", "50", "ms"],
    ]
    assert lines[lines.index("Notes") + 1 :] == [
        "  l: not predicted: the model knows no LoRA",
        f"  decode[tensor_parallel=4]: not predicted: {reason}",
        "  b: decode is CPU bound",
        "  other software",
    ]
