"""The fake NVML library, built once, and what tests say to it."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def compile_fake(out: Path, *options: str) -> Path:
    source = ROOT / "tests" / "native" / "fake_nvml.cpp"
    command = ["c++", "-std=c++17", "-shared", "-fPIC", *options, f"-I{ROOT / 'csrc'}", str(source), "-o", str(out)]
    subprocess.run(command, check=True)
    return out


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_fake(tmp_path_factory.mktemp("nvml") / "libfake-nvml.so.1")


@pytest.fixture(scope="session")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_fake(tmp_path_factory.mktemp("nvml") / "libold-nvml.so.1", "-DFAKE_NVML_OLD")


@pytest.fixture
def fake_nvml(fake_library: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Use the fake; keyword ``load="constant:400"`` sets FAKE_NVML_LOAD, and so on."""

    def tell(**settings: object) -> None:
        for name, value in settings.items():
            monkeypatch.setenv(f"FAKE_NVML_{name.upper()}", str(value))

    monkeypatch.setenv("PYBENCH_NVML_LIBRARY", str(fake_library))
    for name in ("DEVICES", "LOAD", "FAIL", "FAIL_AFTER_MS", "HANG"):
        monkeypatch.delenv(f"FAKE_NVML_{name}", raising=False)
    return tell


@pytest.fixture
def fake_epoch_ns(fake_library: Path) -> int:
    """CLOCK_MONOTONIC time at which the fake's load began."""
    epoch = ctypes.CDLL(str(fake_library)).fake_nvml_epoch_ns
    epoch.restype = ctypes.c_int64
    return int(epoch())
