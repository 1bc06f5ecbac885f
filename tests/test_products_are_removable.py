"""Each product is one folder: without it the commands of the core work, and its own commands say what is missing."""

from __future__ import annotations

import json
import shlex
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
import json
import shlex
from click.testing import CliRunner
from pybench.cli.main import main
for words in {commands!r}:
    done = CliRunner().invoke(main, words)
    print(json.dumps([done.exit_code, done.stderr]))
"""
CORE = ("--help", f"report {shlex.quote(str(KEPT))}", "plan tp_scaling --profile cpu")
OWN_COMMAND = {"evidence": "verify", "explain": "explain", "fleet": "fleet", "nightly": "compare"}


def without(product: str, *commands: str) -> list[tuple[int, str]]:
    """Exit code and standard error of each ``pybench COMMAND``, in a Python that does not find the product's folder."""
    code = HIDE.format(folder=f"pybench.{product}", commands=[shlex.split(command) for command in commands])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("product", PRODUCTS)
def test_the_core_works_without_a_product(product: str) -> None:
    """Help lists every command; plan, run and report are whole; its own command is refused."""
    *core, (code, message) = without(product, *CORE, "run --help", f"{OWN_COMMAND[product]} --help")
    assert core == [(0, "")] * 4
    assert code == 2
    assert f"this pybench was installed without pybench.{product}" in message


def test_kept_results_are_read_without_power() -> None:
    """Runs record power, so only a run needs it: help, plan and the reports of kept results are whole without."""
    *core, (code, message) = without("power", *CORE, "power --help")
    assert core == [(0, "")] * 3
    assert code == 2
    assert "this pybench was installed without pybench.power" in message
