"""The native sampler under the thread, address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCES = (
    *("capability", "clock", "gpu", "nvml_api", "publication_grid", "recorder"),
    *("recording", "retention", "session", "step_search"),
)


SANITIZERS = ("thread", "address,undefined")


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_ring(native: Callable[..., Path], sanitizer: str, tmp_path: Path) -> None:
    options = (f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-O1")
    program = native(tmp_path / "ring", "tests/native/ring_stress.cpp", *options)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "every record accounted for\n", "")


@pytest.fixture(scope="module", params=SANITIZERS)
def sanitized(
    request: pytest.FixtureRequest,
    native: Callable[..., Path],
    fake_driver: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, Path]:
    """The stress program and a fake driver, both built with one sanitizer."""
    folder = tmp_path_factory.mktemp("sanitized")
    # As quick to build as can be: a build takes longer than the sessions.
    options = (f"-fsanitize={request.param}", "-fno-sanitize-recover=all", "-g1", "-Og")
    sources = ("tests/native/sampler_stress.cpp", *(f"csrc/{name}.cpp" for name in SOURCES))
    return native(folder / "stress", *sources, *options), fake_driver(folder, *options)


@pytest.mark.parametrize(
    "told",
    [
        {"LATENCY": "h200", "DEVICES": "8"},
        {"FAIL": "nvmlDeviceGetFieldValues:999:1,nvmlDeviceGetSamples:4,*:15:0@after=60"},
        {"HANG": "nvmlDeviceGetFieldValues:1500:1@call=3", "LATENCY": "h200", "GLOBAL_LOCK": "1"},
    ],
    ids=["well", "failing", "hanging"],
)
def test_sessions(sanitized: tuple[Path, Path], told: dict[str, str]) -> None:
    program, fake = sanitized
    told = {f"FAKE_NVML_{name}": value for name, value in told.items()}
    environment = {**os.environ, **told, "PYBENCH_NVML_LIBRARY": str(fake), "FAKE_NVML_LOAD": "square:100:600:40"}
    done = subprocess.run([program], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "30 sessions\n", "")
