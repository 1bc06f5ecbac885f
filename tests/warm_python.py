"""A Python whose workers begin with torch imported, and a ``pybench`` that begins with all its modules imported.

A server imports everything once and forks each process, which starts in milliseconds instead of seconds and then
behaves as a cold one. A test names the Python as an interpreter, or starts the command. Tests about a start, an import,
closed streams, the encoding of streams, or the remains of a dead host start the real programs.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

# What ranks and their launcher import. No pybench: a worker's is that of its stage.
IMPORTED = (
    "torch._inductor.compile_fx",  # which peft's layers import, too
    "torch.distributed.run",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "transformers.integrations.sdpa_attention",
    "transformers.models.llama.modeling_llama",
    "peft",
    "aiohttp.web",
)
# Room for a worker's environment where /proc shows it: processes of a run are found by it.
_ROOM = "R" * 2**14
_STARTER = "PYBENCH_STARTER"
# By a shell: the path of a Python may have spaces, which a script's first line can't.
_PROGRAM = """#!/bin/sh
exec "{python}" -IS "{client}" "$0" "$@"
"""
_CLIENT = """
import os, sys
_, program, *arguments = sys.argv
if {is_command}:
    argv, python = [program, *arguments], sys.executable
elif arguments[:2] != ["-I", "-B"] or arguments[2] == "-c":
    os.execv(sys.executable, [sys.executable, *arguments])
else:
    argv, python = arguments[2:], program
import json, signal, socket
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
def pass_on(number, frame):
    server.send(bytes([number]))
order = {{"argv": argv, "cwd": os.getcwd(), "environ": dict(os.environ), "python": python}}
socket.send_fds(server, [json.dumps(order).encode() + b"\\n"], [0, 1, 2])
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, pass_on)
status = server.recv(16)
code = os.waitstatus_to_exitcode(int(status)) if status else 1
if code < 0:
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


@contextmanager
def forking_python(folder: Path, *, is_command: bool = False) -> Iterator[Path]:
    """Path of a program in ``folder`` that starts scripts as this Python with ``-I -B`` does, while it is open.

    As a command, the program does what ``pybench`` does instead.
    Processes that give the same folder share its server: the first starts it, and it ends with the last.
    """
    address, client = str(folder / "server"), folder / "client.py"
    program = folder / ("pybench" if is_command else "python")
    with (folder / "users").open("w") as users, (folder / "start").open("w") as start:
        fcntl.flock(users, fcntl.LOCK_SH)
        fcntl.flock(start, fcntl.LOCK_EX)
        if not _serves(address):
            client.write_text(_CLIENT.format(address=address, is_command=is_command))
            program.write_text(_PROGRAM.format(python=sys.executable, client=client))
            program.chmod(0o755)
            Path(address).unlink(missing_ok=True)
            environ = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "ROOM": _ROOM}
            server = [sys.executable, "-I", "-B", __file__, address, users.name, *(["command"] if is_command else [])]
            subprocess.run(server, stdin=subprocess.DEVNULL, env=environ, start_new_session=True, check=True)
        fcntl.flock(start, fcntl.LOCK_UN)
        yield program


def _serves(address: str) -> bool:
    with socket.socket(socket.AF_UNIX) as server:
        return server.connect_ex(address) == 0


class _Server:
    """Forks a worker for each client, and ends one whose client is gone."""

    def __init__(self, address: str, become: Callable[[], None]) -> None:
        self._become = become
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(address)
        self._listening.listen(64)
        self._events = selectors.DefaultSelector()

    def serve(self) -> None:
        """Until it is killed."""
        self._events.register(self._listening, selectors.EVENT_READ, self._accept)
        while True:
            for key, _ in self._events.select():
                key.data(key.fileobj)

    def _accept(self, _: Any) -> None:
        client, _address = self._listening.accept()
        data, files, _, _ = socket.recv_fds(client, 2**16, 3)
        while not data.endswith(b"\n") and (more := client.recv(2**16)):
            data += more
        if data.endswith(b"\n"):  # it lives
            self._start(client, json.loads(data), files)
        else:
            client.close()
        for file in files:
            os.close(file)

    def _start(self, client: socket.socket, order: dict[str, Any], files: list[int]) -> None:
        pid = os.fork()
        if pid == 0:
            _take_over(order, files)
            self._become()
        worker = os.pidfd_open(pid)

        def hear(_: Any) -> None:
            """The client passes signals on, or has ended."""
            if client.fileno() < 0:  # both at once
                return
            numbers = client.recv(16)
            for number in numbers:
                signal.pidfd_send_signal(worker, number)
            if not numbers:
                end(client)

        def end(_: Any) -> None:
            """The worker has ended, or its client has: it is killed then."""
            if client.fileno() < 0:  # both at once
                return
            self._events.unregister(client)
            self._events.unregister(worker)
            signal.pidfd_send_signal(worker, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            os.close(worker)
            with client:
                try:
                    client.send(str(status).encode())
                except OSError:
                    return  # nobody waits for it

        self._events.register(worker, selectors.EVENT_READ, end)
        self._events.register(client, selectors.EVENT_READ, hear)


def _take_over(order: dict[str, Any], files: list[int]) -> None:
    """Stand where a client does, with its streams, variables and arguments."""
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, 4096)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environ"] | {_STARTER: str(os.getppid())})
    _show_environment()
    sys.argv, sys.executable = order["argv"], order["python"]


def _command() -> None:
    """Be the ordered command, and end as any Python does."""
    from pybench.cli.main import main  # noqa: PLC0415 - no worker begins with it

    sys.exit(main())


def _work() -> None:
    """Be the ordered worker; never returns. Without an end of the libraries that are imported, which takes long."""
    code: Any = 1
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
    if isinstance(code, str):
        print(code, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def _show_environment() -> None:
    """Write the environment to where /proc shows it: over that which the server was started with."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[47]), int(fields[48])  # env_start and env_end: 50 and 51 of proc(5)
    block = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in os.environ.items())
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, block, min(len(block), end - start))


def _end_with_last(users: str, address: str, server: int) -> None:
    """Kill the server once no process uses it. A process that begins meanwhile waits."""
    with open(users) as file:  # noqa: PTH123 - as early as can be
        fcntl.flock(file, fcntl.LOCK_EX)
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
        Path(address).unlink(missing_ok=True)


def import_everything() -> None:
    """Import all that a command of ``pybench`` needs, except other packages, and make what checks its files."""
    import pybench  # noqa: PLC0415 - no worker begins with it

    for module in pkgutil.walk_packages(pybench.__path__, "pybench."):
        if not module.name.startswith("pybench.worker"):
            import_module(module.name)
    from pybench.files.run import folder, journal, results_file  # noqa: PLC0415
    from pybench.files.suite import expected_table, schema  # noqa: PLC0415
    from pybench.run.events import reader as events  # noqa: PLC0415

    for checked in (folder._MANIFEST, journal._RECORD, results_file._RESULTS, events):
        checked._validator()
    schema.model_of({"benchmark": [{"workload": "generate"}]})
    expected_table._table_model()


def _compile_pages() -> None:
    """Compile the templates of pages."""
    from pybench.report.page.document import _environment  # noqa: PLC0415

    for name in _environment().list_templates(extensions=("j2",)):
        _environment().get_template(name)


def _run_server(address: str, ready: int, *, is_command: bool) -> None:
    server = _Server(address, _command if is_command else _work)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for background jobs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if is_command:
            import_everything()
            _compile_pages()
        else:
            for name in IMPORTED:
                import_module(name)
    gc.freeze()  # so that the forks share what is here
    os.write(ready, b"y")
    os.close(ready)
    server.serve()


if __name__ == "__main__":
    address, users, *command = sys.argv[1:]
    waiting, ready = os.pipe()
    if os.fork():  # this process ends when the server can be used
        os.close(ready)
        sys.exit(not os.read(waiting, 1))
    if server := os.fork():
        os.close(ready)
        _end_with_last(users, address, server)
    else:
        _run_server(address, ready, is_command=bool(command))
