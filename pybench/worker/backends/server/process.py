"""The server's process: started on loopback, waited for, ended with everything that it started."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from pybench.model.servers import server_command, server_config, server_of
from pybench.model.tuning import LOOPBACK
from pybench.model.workloads.generate import Generate
from pybench.worker.backend import EngineError

ADDRESS = "127.0.0.1"
_START_LIMIT_S = 1800.0
"""The limit on a server's start. The attempt's own time_limit_s usually ends it before."""
_TERMINATE_S = 30.0
_ENDING_S = 1.0
_POLL_S = 0.1
_ANSWER_S = 5.0
_TAIL_BYTES, _TAIL_LINES = 65536, 70  # of which the host reads the end for an error's cause
_STUB = Path(__file__).with_name("stub.py")


@dataclass
class Server:
    """A running server. ``num_steps`` counts steps with a salt, over all points that share it."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path
    num_steps: int = 0

    def check(self) -> None:
        """Raise :class:`EngineError` when the server has ended, or does so shortly after its connections."""
        with suppress(subprocess.TimeoutExpired):
            code = self.process.wait(_ENDING_S)
            raise EngineError(f"the server ended with exit code {code} at work")

    def last_words(self) -> str:
        """The last line of its log."""
        return log_tail(self.log).rpartition("\n")[2]


@contextmanager
def served(settings: Generate, folder: Path) -> Iterator[Server]:
    """A server for the model in ``folder``, as long as the context is open.

    Raises :class:`EngineError` where it ends or does not answer.
    """
    traits = server_of(settings)
    config = server_config(settings)
    (folder / "server.json").write_text(config or "", encoding="utf-8")
    with _free_port() as port:
        place = {
            "python": sys.executable,
            "stub": str(_STUB),
            "model_folder": str(folder),
            "port": str(port),
            "config": str(folder / "server.json"),
        }
    command = server_command(settings, place)
    print("server:", json.dumps(command), flush=True)  # noqa: T201 - standard output is the attempt's log
    environment = {**os.environ, **LOOPBACK, **traits.environment}
    log = folder / "server.log"
    with log.open("wb") as stream:
        try:
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
        except OSError as error:
            raise EngineError(f"server: {command[0]}: {error.strerror}") from error
    try:
        _wait_until_healthy(process, port, traits.health_path)
        yield Server(f"http://{ADDRESS}:{port}", process, log)
    except BaseException:
        print(log_tail(log), file=sys.stderr, flush=True)  # noqa: T201 - standard error is the attempt's log
        raise
    finally:
        _end(process)


@contextmanager
def _free_port() -> Iterator[int]:
    """A port that nobody has; it is given up just before the server takes it."""
    with socket.create_server((ADDRESS, 0)) as held:
        yield int(held.getsockname()[1])


def _wait_until_healthy(process: subprocess.Popen[bytes], port: int, path: str) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    while not _is_healthy(port, path):
        code = process.poll()
        if code is not None:
            raise EngineError(f"the server ended with exit code {code} before it answered {path}")
        if time.monotonic() > deadline:
            raise EngineError(f"the server did not answer {path} within {_START_LIMIT_S:g} s")
        time.sleep(_POLL_S)


def _is_healthy(port: int, path: str) -> bool:
    connection = HTTPConnection(ADDRESS, port, timeout=_ANSWER_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200  # noqa: PLR2004 - HTTP's OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, then SIGKILL. Processes that the server leaves behind end with this one."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(_TERMINATE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def log_tail(log: Path) -> str:
    """The last lines of the server's log."""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        return "\n".join(stream.read().decode(errors="replace").splitlines()[-_TAIL_LINES:])
