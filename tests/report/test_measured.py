"""Results of real machines that are kept with the suites."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter

from pybench.model.results import Results
from pybench.report.formats import FORMATS, render
from pybench.store.shipped import shipped_suites

KEPT = sorted((shipped_suites() / "measured").glob("*.json"))


def test_results_are_kept() -> None:
    """Beside the suites that they are of."""
    assert KEPT


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_kept_results_are_of_gpus_and_can_be_shown(path: Path) -> None:
    """With machine, driver and versions, by every format."""
    results = TypeAdapter(Results).validate_json(path.read_text(encoding="utf-8"))
    assert results.provenance.driver
    assert results.provenance.packages["torch"]
    assert all(name == "NVIDIA H200" for name in results.provenance.gpu_names)
    for name in FORMATS:
        assert results.points[0].benchmark.split("_")[0] in render(results, name)
