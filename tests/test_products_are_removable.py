"""Each product is one folder: without it the commands of the core work, and its own commands say what is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_floors import PRODUCTS

KEPT = Path(__file__).parents[1] / "suites" / "measured" / "tp_scaling-h200x4-20261121.json"
HIDE = """
import importlib.abc, sys
class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {folder!r} or name.startswith({folder!r} + "."):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name={folder!r})
sys.meta_path.insert(0, Hidden())
from pybench.cli.main import main
main({words!r})
"""
OWN_COMMAND = {"evidence": "verify", "explain": "explain", "fleet": "fleet", "nightly": "compare"}


def without(product: str, *words: str) -> subprocess.CompletedProcess[str]:
    """``pybench WORDS`` in a Python that does not find the product's folder."""
    code = HIDE.format(folder=f"pybench.{product}", words=list(words))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("product", PRODUCTS)
def test_the_core_works_without_a_product(product: str) -> None:
    """Help lists every command; plan, run and report are whole."""
    for words in (["--help"], ["run", "--help"], ["report", str(KEPT)], ["plan", "tp_scaling", "--profile", "cpu"]):
        done = without(product, *words)
        assert (done.returncode, done.stderr) == (0, ""), words
    missing = without(product, OWN_COMMAND[product], "--help")
    assert missing.returncode == 2
    assert f"this pybench was installed without pybench.{product}" in missing.stderr


def test_kept_results_are_read_without_power() -> None:
    """Runs record power, so only a run needs it: help, plan and the reports of kept results are whole without."""
    for words in (["--help"], ["plan", "tp_scaling", "--profile", "cpu"], ["report", str(KEPT)]):
        done = without("power", *words)
        assert (done.returncode, done.stderr) == (0, ""), words
    missing = without("power", "power", "--help")
    assert missing.returncode == 2
    assert "this pybench was installed without pybench.power" in missing.stderr
