"""An explanation as text."""

from __future__ import annotations

from typing import Any

from pybench.report.explanation import render
from tests.judge.conftest import Build


def test_the_report_says_what_is_prediction(runs: Any, build: Build) -> None:
    """Every table, with the runs' names; a point without a prediction shows why."""
    explanation = runs.explain(
        [(build.generate(1), 0.16), (build.generate(2), 0.1), (build.generate(4), 0.08)], fingerprint="g"
    )
    text = render(explanation, width=200)
    assert text.startswith("run, explained by node\nnote: the two runs")
    assert "Prediction, not measured" in text
    assert "no size curve of all_reduce on 4 GPUs" in text
    assert "1.600x" in text
    assert "worst size off by" in text
    assert "unexplained" in text


def test_the_report_without_predictions(runs: Any, build: Build) -> None:
    """Tables without rows are left out."""
    text = render(runs.explain([(build.generate(2), 0.1), (build.generate(4), 0.08)]), width=200)
    assert "Measured and predicted" in text
    assert "Prediction, not measured" not in text
    assert "and why" not in text
