"""The wheel, installed away from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the checkout's tracked and untracked files, without the network."""
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"),
            *("--config-settings", f"build-dir={out / 'build'}", "--wheel-dir", str(out), str(ROOT)),
        ],
        check=True,
    )
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_holds_what_a_run_needs(wheel: Path) -> None:
    """And nothing that only a checkout needs."""
    names = zipfile.ZipFile(wheel).namelist()
    for needed in ("pybench/data/models.toml", "pybench/suites/tp_scaling.toml", "pybench/py.typed"):
        assert needed in names
    for folder, ending in (("pybench/suites/expected/", ".toml"), ("pybench/_nvml", ".so"), ("pybench-", "/LICENSE")):
        assert any(name.startswith(folder) and name.endswith(ending) for name in names), (folder, ending)
    assert not [name for name in names if name.startswith(("tests/", "csrc/")) or "__pycache__" in name]


def test_it_works_from_any_folder(wheel: Path, tmp_path: Path) -> None:
    """Every command that needs no backend, and a run's first attempt."""
    site, here = tmp_path / "site", tmp_path / "here"
    here.mkdir()
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([*install, str(wheel)], check=True)
    # The installed copy must win over an editable install's finder.
    code = (
        "import sys; from importlib.machinery import PathFinder; sys.meta_path.insert(0, PathFinder); "
        f"sys.path.insert(0, {str(site)!r}); from pybench.cli.main import main; main()"
    )

    def pybench(*arguments: str) -> str:
        environ = {**os.environ, "PYBENCH_NVML_LIBRARY": "/nonexistent/libnvidia-ml.so.1"}
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], cwd=here, env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode in {0, 3, 4}, done.stderr
        return done.stdout

    assert "2 points" in pybench("plan", "tp_scaling", "--profile", "cpu", "--max-gpus", "2")
    assert "schema" in pybench("schema")
    assert "NVIDIA driver" in pybench("doctor")
    assert "verdict: no_expectation" in pybench("run", "tp_scaling", "-k", "tensor_parallel=1", "--profile", "cpu")
    (run,) = (here / "runs").iterdir()
    staged = run / "worker" / "pybench" / "worker" / "__main__.py"
    assert staged.read_bytes() == (site / "pybench" / "worker" / "__main__.py").read_bytes()
