"""The native sampler under the thread, address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("tests/native/sampler_stress.cpp", "csrc/nvml_api.cpp", "csrc/power_sampler.cpp")


def build(sanitizer: str, folder: Path) -> tuple[Path, Path]:
    """The stress program and a fake driver, both built with one sanitizer."""
    common = ["c++", "-std=c++17", "-g", "-O1", "-Wall", "-Wextra", "-Werror", f"-fsanitize={sanitizer}", "-Icsrc"]
    program, fake = folder / "stress", folder / "libfake-nvml.so.1"
    shared = ["-shared", "-fPIC", "tests/native/fake_nvml.cpp", "-o", str(fake)]
    subprocess.run([*common, *shared], cwd=ROOT, check=True)
    options = ["-fno-sanitize-recover=all", *SOURCES, "-o", str(program), "-pthread", "-ldl"]
    subprocess.run([*common, *options], cwd=ROOT, check=True)
    return program, fake


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
@pytest.mark.parametrize("fail", ["", "nvmlDeviceGetFieldValues:999:1,nvmlDeviceGetSamples:4"])
def test_fifty_sessions(sanitizer: str, fail: str, tmp_path: Path) -> None:
    program, fake = build(sanitizer, tmp_path)
    told = {"PYBENCH_NVML_LIBRARY": str(fake), "FAKE_NVML_LOAD": "square:100:600:40", "FAKE_NVML_FAIL": fail}
    done = subprocess.run([program], env={**os.environ, **told}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "50 sessions\n", "")
