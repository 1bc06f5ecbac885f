"""The fake interpreter behaves as the real one after its start."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")

SHOWN = """
import json, os, pathlib, sys
environ = pathlib.Path("/proc/self/environ").read_bytes().split(b"\\0")
seen = [os.environ["A"], b"A=b" in environ]
print(json.dumps([sys.argv, os.getcwd(), "torch" in sys.modules, sys.flags.isolated, *seen]))
print("lost", file=sys.stderr)
sys.exit(7)
"""


def script(folder: Path, text: str) -> str:
    (folder / "script.py").write_text(text)
    return str(folder / "script.py")


def test_a_script_has_its_arguments_streams_environment_and_exit_code(warm_python: Path, tmp_path: Path) -> None:
    """The environment also where the engines look for a run's mark."""
    command = [str(warm_python), "-I", "-B", script(tmp_path, SHOWN), "one"]
    done = subprocess.run(command, cwd=tmp_path, env={"A": "b"}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (7, "lost\n")
    assert json.loads(done.stdout) == [command[3:], str(tmp_path), True, 1, "b", True]


def test_what_is_no_script_is_the_real_pythons(warm_python: Path) -> None:
    command = [str(warm_python), "-I", "-B", "-c", "import sys; print('torch' in sys.modules, sys.executable)"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"False {sys.executable}\n"


def test_a_signal_ends_both(warm_python: Path, tmp_path: Path) -> None:
    """A script that is killed is reported as killed."""
    command = [str(warm_python), "-I", "-B", script(tmp_path, "import os, signal; os.kill(os.getpid(), 9)")]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL


def test_a_script_ends_with_the_program_that_stands_for_it(warm_python: Path, tmp_path: Path) -> None:
    """The pipe ends once neither holds it."""
    command = [str(warm_python), "-I", "-B", script(tmp_path, "import time; print(1, flush=True); time.sleep(600)")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"1\n"
        client.kill()
        assert client.stdout.read() == b""


def test_a_program_that_dies_before_its_order_is_forgotten(warm_python: Path, tmp_path: Path) -> None:
    """The next one is served."""
    for sent in (b"", b"{"):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(warm_python.with_name("server")))
            client.send(sent)
    assert subprocess.run([str(warm_python), "-I", "-B", script(tmp_path, "")], check=False).returncode == 0
