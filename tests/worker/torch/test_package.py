"""Packages that only some points need."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from pybench.worker.backend import MissingPackageError
from pybench.worker.imports import needs_package


def test_the_package_at_the_bottom_is_named() -> None:
    """An installed library reports in its own words that it lacks a package."""
    wrapped = ImportError("please follow the instructions")
    wrapped.__cause__ = ModuleNotFoundError("No module named 'ao'", name="ao")
    with (
        pytest.raises(
            MissingPackageError, match=r"strategy 'x' needs the package 'ao', .* pip install accelerate peft"
        ),
        needs_package("strategy 'x'"),
    ):
        raise wrapped
