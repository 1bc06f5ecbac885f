"""Reasons against a fork: threads of the starter, and a CUDA that is initialized."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_ASK = """
import ctypes, threading
from pybench.worker.launcher import fork_hazard
{before}
print(fork_hazard())
"""
_THREAD = """
ready, end = threading.Event(), threading.Event()
def run():
    ctypes.CDLL(None).prctl(15, {name!r}, 0, 0, 0)  # PR_SET_NAME
    ready.set()
    end.wait()
threading.Thread(target=run, daemon=True).start()
ready.wait()
"""


def _hazard(before: str) -> str:
    command = (sys.executable, "-c", _ASK.format(before=before))
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("name", [b"cuda00002000009", b"jemalloc_bg_thd"])
def test_threads_of_nvml_and_of_the_allocator_do_not_prevent_a_fork(name: bytes) -> None:
    """The import of vLLM opens NVML, and that of transformers pyarrow."""
    assert _hazard(_THREAD.format(name=name)) == "None"


def test_any_other_thread_prevents_a_fork() -> None:
    """It would be gone in the worker, its locks held."""
    assert _hazard(_THREAD.format(name=b"pool-1")).startswith("2 threads run: pool-1, python")


@pytest.mark.parametrize(("code", "hazard"), [(3, "None"), (0, "CUDA is initialized"), (201, "CUDA is initialized")])
def test_an_initialized_cuda_prevents_a_fork(code: int, hazard: str, tmp_path: Path) -> None:
    """The driver's library, where it is loaded, answers whether ``cuInit`` was called (3: it was not)."""
    library = tmp_path / "libcuda.so.1"
    source = tmp_path / "cuda.c"
    source.write_text(f"int cuCtxGetCurrent(void **context) {{ *context = 0; return {code}; }}")
    named = f"-Wl,-soname,{library.name}"
    subprocess.run(("c++", "-xc", "-shared", "-fPIC", named, "-o", str(library), str(source)), check=True)
    assert _hazard(f"ctypes.CDLL({str(library)!r}, ctypes.RTLD_GLOBAL)") == hazard
