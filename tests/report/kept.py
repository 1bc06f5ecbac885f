"""Kept results of real machines."""

from __future__ import annotations

from pybench.files.shipped import shipped_suites

KEPT = sorted((shipped_suites() / "measured").glob("*.json"))
ONE_OF_A_KIND = [*{path.stem.partition("_")[0]: path for path in KEPT}.values()]
"""The last by name of those whose suites begin with one word: each workload and strategy is among them."""
