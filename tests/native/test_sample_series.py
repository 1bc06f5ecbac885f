"""Samples of a driver, drained while the wall clock is set at any time of a drain, by a native program."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path


def test_each_sample_comes_once_at_its_time(native: Callable[..., Path], tmp_path: Path) -> None:
    """Of drivers that stamp by the clock that was set, and of those that go on as before."""
    options = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1")
    sources = ("tests/native/sample_series.cpp", "csrc/sample_series.cpp")
    program = native(tmp_path / "sample_series", *sources, *options)
    ended = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.returncode) == ("ok\n", 0), ended.stderr
