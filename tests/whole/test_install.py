"""The wheel, installed away from the checkout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path

import pytest

from tests.builders import NO_DRIVER, decode_benchmark

ROOT = Path(__file__).parents[2]

DECODE = decode_benchmark(prompt_tokens=2, output_tokens=2, attempts=1, steps=1)
SUITE = f'schema = 1\nname = "tiny"\n\n{DECODE}'

pytestmark = pytest.mark.timeout(1200)


def test_the_wheel_holds_what_a_run_needs(wheel: Path) -> None:
    """Every data file of the checkout, and nothing that only a checkout needs."""
    names = set(zipfile.ZipFile(wheel).namelist())
    suites = {f"pybench/{path.relative_to(ROOT)}" for path in (ROOT / "suites").rglob("*.toml")}
    assert suites > {"pybench/suites/tp_scaling.toml", "pybench/suites/expected/tensor_parallel_generate.toml"}
    suites |= {f"pybench/{path.relative_to(ROOT)}" for path in (ROOT / "suites").glob("*.schema.json")}
    assert {*suites, "pybench/suites/example.tar.xz", "pybench/data/models.toml", "pybench/py.typed"} <= names
    assert {f"{path.relative_to(ROOT)}" for path in (ROOT / "pybench").rglob("*.py")} <= names
    for extension in ("_energy", "_nvml"):
        assert [name for name in names if name.startswith(f"pybench/{extension}.") and name.endswith(".so")]
    assert [name for name in names if name.endswith(".dist-info/licenses/LICENSE")]
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"pybench", "pybench_gpu"}
    assert not [name for name in names if {"tests", "csrc", "__pycache__"} & {*Path(name).parts}]


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked by pip into a folder of its own."""
    target = tmp_path_factory.mktemp("site")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps", "--no-index"]
    subprocess.run([*install, "--target", str(target), str(wheel)], check=True)
    return target


def test_it_works_from_any_folder(site: Path, tmp_path: Path) -> None:
    """The installed script: every command that needs no run, then a run."""
    # Without site (-S), no editable install's finder precedes the installed copy and its packages.
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(site), *filter(None, sys.path))),
        "PATH": str(tmp_path),  # doctor finds no engine, which it would ask for seconds
        **dict([NO_DRIVER]),
    }

    def python(*arguments: str, codes: tuple[int, ...] = (0,)) -> str:
        command = [sys.executable, "-S", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode in codes, done.stderr
        return done.stdout

    pybench = partial(python, str(site / "bin" / "pybench"))
    assert python("-c", "import pybench; print(pybench.__file__)") == f"{site}/pybench/__init__.py\n"
    (about,) = site.glob("*.dist-info")
    assert about.name == f"pybench_gpu-{pybench('--version').split()[-1]}.dist-info"
    assert "2 points" in pybench("plan", "tp_scaling", "--profile", "cpu", "--max-gpus", "2")
    assert "benchmark" in json.loads(pybench("schema"))["properties"]
    assert re.search(r"^ok +power sampler +extension built$", pybench("doctor", codes=(0, 3)), re.MULTILINE)
    (tmp_path / "tiny.toml").write_text(SUITE)
    shown = pybench("run", "tiny.toml", codes=(4,))
    assert "verdict: no expectation" in shown
    (run,) = (tmp_path / "runs").iterdir()
    assert pybench("report", str(run)) in shown
    staged = run / "worker" / "pybench" / "worker" / "__main__.py"
    assert staged.read_bytes() == (site / "pybench" / "worker" / "__main__.py").read_bytes()
