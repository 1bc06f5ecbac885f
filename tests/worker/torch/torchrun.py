"""Starts ranks of a script by torchrun."""

from __future__ import annotations

import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def torchrun(python: Path, num_ranks: int, script: str, *arguments: str, limit_s: float = 280) -> None:
    """Run a script of this folder as ``count`` ranks of ``python``; all must succeed."""
    torch = find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    isolated, launcher = (str(python), "-I", "-B"), Path(torch.origin).with_name("distributed") / "run.py"
    done = subprocess.run(
        [
            *(*isolated, str(launcher), f"--nproc-per-node={num_ranks}", "--standalone", "--no-python"),
            *(*isolated, str(Path(__file__).with_name(script)), *arguments),
        ],
        env={**os.environ, **_ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
