"""Commands where a compiled extension is absent, or of an older build."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import pybench
from pybench import _energy, _nvml
from pybench.machine.extension import INTERFACES, interface

# The test needs a new process: loaded modules would keep the extension.
PROGRAM = """
import json, sys, types
sys.modules["pybench._energy"] = None if sys.argv[1] == "absent" else types.ModuleType("_energy")
import pybench
from click.testing import CliRunner
from pybench.cli.main import main
found = {}
for line in ("plan tp_scaling --profile cpu", "power record -- true", "run tp_scaling --profile cpu"):
    result = CliRunner().invoke(main, line.split())
    found[line.split()[0]] = result.exit_code, result.output
try:
    pybench.PowerSampler
except Exception as error:
    found["sampler"] = type(error).__name__, str(error)
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    ("state", "fault"),
    [
        ("absent", "extension pybench._energy not built: "),
        ("older", "extension pybench._energy is an older build"),
    ],
)
def test_without_the_loops_of_an_estimate(tmp_path: Path, state: str, fault: str) -> None:
    """Whatever needs joules ends in one line with the remedy before it measures; a plan needs none."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, state], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert found["plan"][0] == 0
    for command in ("power", "run"):
        code, output = found[command]
        assert (code, output.count("\n")) == (3, 1)
        assert output.startswith(f"pybench: energy estimate: {fault}")
        assert output.endswith("; reinstall with a C++17 compiler at hand: pip install .\n")
    assert found["sampler"][0] == "MachineError"
    assert fault in found["sampler"][1]
    assert not (tmp_path / "runs").exists()


def test_the_extension_has_what_is_called() -> None:
    """The extension has exactly the functions that the energy estimate calls."""
    folder = Path(pybench.__file__).parent / "power"
    called = {name for path in folder.glob("*.py") for name in re.findall(r"\b_energy\.(\w+)", path.read_text())}
    assert called == {name for name in dir(_energy) if not name.startswith("_")}


@pytest.mark.parametrize("extension", [_energy, _nvml])
def test_a_change_of_the_interface_is_recorded(extension: ModuleType) -> None:
    """After a change, INTERFACES has what ``interface`` gives."""
    assert interface(extension) == INTERFACES[extension.__name__.removeprefix("pybench.")]


def test_another_argument_or_another_row_is_another_interface() -> None:
    """An older build often has the same names, as a row fewer of a result shows. How a type is written is no change."""
    signature = "undone(time_s: Sequence[float], *, tau_s: float) -> tuple[Array, float]\n\nRows end_s, energy_j.\n"
    found = {
        text: interface(_with(text))
        for text in (
            signature,
            signature.replace("Sequence[float]", "typing.Annotated[ArrayLike]"),
            signature.replace("tau_s", "phase_s"),
            signature.replace("energy_j", "energy_j, seen_w"),
        )
    }
    first, spelled, argument, row = found.values()
    assert first == spelled
    assert len({first, argument, row}) == 3


def _with(text: str) -> ModuleType:
    """An extension with one function, of this docstring."""
    extension = ModuleType("_energy")
    extension.undone = SimpleNamespace(__doc__=text)  # type: ignore[attr-defined]
    return extension
