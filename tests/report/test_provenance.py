"""The line that says what a table rests on."""

from __future__ import annotations

from dataclasses import replace

from pybench.model.results import Results
from pybench.report.provenance import sentence


def test_gpus_driver_and_packages(results: Results) -> None:
    """Equal GPUs are counted."""
    assert sentence(results.provenance) == (
        "2026-11-21T08:15:00+00:00, pybench 0.1.0, 4 x NVIDIA H200, driver 580.00, python 3.12.3, torch 2.11.0, "
        "not containerised"
    )


def test_without_gpus_the_cpu_is_named(empty: Results) -> None:
    """Also when nobody knows it."""
    assert "unknown CPU, not containerised" in sentence(empty.provenance)
    assert "EPYC, in docker" in sentence(replace(empty.provenance, cpu_model="EPYC", engine="docker"))
