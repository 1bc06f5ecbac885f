"""Results of real machines that are kept with the suites."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter

from pybench.model.results import Results
from pybench.report.formats import FORMATS, render
from pybench.store.shipped import shipped_suites

KEPT = sorted((shipped_suites() / "measured").glob("*.json"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
@pytest.mark.parametrize("name", FORMATS)
def test_kept_results_can_be_shown(path: Path, name: str) -> None:
    """By every format, each benchmark that was measured by its name."""
    results = TypeAdapter(Results).validate_json(path.read_text(encoding="utf-8"))
    text = render(results, name).replace("\\", "")
    assert all(point.benchmark in text for point in results.points if point.metrics)
