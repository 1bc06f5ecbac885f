"""A rank reads the driver's version from the kernel's texts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pybench.worker import exchange
from pybench.worker.exchange import Device, driver_version, is_forward_compatible, mapped_library, read_header

CLOSED = """\
NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.288.01  Wed Aug  6 00:44:49 UTC 2025
GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)
"""
OPEN = """\
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (builder@U22)  Sun Jul 27 UTC 2025
GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)
"""
ARM = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  570.133.20  Release Build  (root@x)\n"
MAPS = """\
55d0c2a00000-55d0c2a01000 r--p 00000000 00:57 3146263                    /usr/bin/python3.12
7f1d3c000000-7f1d3c021000 rw-p 00000000 00:00 0
7f1d40000000-7f1d42345000 r-xp 00000000 00:57 7341523                    /usr/lib/libcudart.so.12.8.90
7f1d5a200000-7f1d5a3c8000 r--p 00000000 fd:01 1579334                    {path}
7f1d5a3c8000-7f1d5f3a6000 r-xp 001c8000 fd:01 1579334                    {path}
7ffd9a5c5000-7ffd9a5e6000 rw-p 00000000 00:00 0                          [stack]
"""
HOST = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06"
COMPAT = "/usr/local/cuda-13.0/compat/libcuda.so.580.65.06"


@pytest.mark.parametrize(
    ("text", "version"), [(CLOSED, "535.288.01"), (OPEN, "580.65.06"), (ARM, "570.133.20"), ("", None), ("?\n", None)]
)
def test_driver_version(text: str, version: str | None) -> None:
    """Versions of the closed and the open kernel module; none without a module."""
    assert driver_version(text) == version


@pytest.mark.parametrize(
    "path", [HOST, COMPAT, "/usr/lib/wsl/lib/libcuda.so.1", "/libcuda.so", "/opt/two words/compat/libcuda.so.1"]
)
def test_mapped_library(path: str) -> None:
    """Whole, with spaces; no other library that begins alike, and the file's own name where it was replaced."""
    assert mapped_library(MAPS.format(path=path), "libcuda.so") == path
    assert mapped_library(MAPS.format(path=f"{path} (deleted)"), "libcuda.so") == path


@pytest.mark.parametrize("path", ["/usr/lib/libcudadebugger.so.1", "/usr/lib/libcuda.so.1.bak", "/usr/lib/libcuda.sox"])
def test_no_library_of_that_name(path: str) -> None:
    """A worker on the CPU maps none."""
    assert mapped_library(MAPS.format(path=path), "libcuda.so") is None


@pytest.mark.parametrize(
    ("library", "driver", "expected"),
    [
        (HOST, "580.65.06", False),
        (HOST, "580.82.07", False),
        (COMPAT, "580.65.06", True),
        ("/usr/local/cuda/compat/lib.real/libcuda.so.1", None, True),
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06", "570.133.20", True),
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.580.100.2", "580.65.06", True),
        ("/usr/lib/wsl/lib/libcuda.so.1", "580.65.06", None),
        (HOST, None, None),
        (None, "580.65.06", None),
    ],
)
def test_forward_compatibility(library: str | None, driver: str | None, *, expected: bool | None) -> None:
    """By the folder, else by comparing versions number by number; unknown without both."""
    assert is_forward_compatible(library, driver) is expected


def test_a_header_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU there is no libcuda, and what depends on it is unknown."""
    monkeypatch.setattr(exchange, "RECORDED_PACKAGES", ("pytest", "no-such-package"))
    header = read_header(0, 1, Device("cpu", "CPU"))
    assert header.pid == os.getpid()
    assert header.packages == {"pytest": pytest.__version__}
    assert header.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert (header.cuda_library, header.forward_compatible) == (None, None)
