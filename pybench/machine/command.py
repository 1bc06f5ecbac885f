"""Run another program to its end, which comes with this process's own: its output, or in one line why there is none."""

from __future__ import annotations

import errno
import os
import selectors
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pybench
from pybench.model.errors import is_machine_fault

# Generous: an engine that is busy with another client responds late, one that hangs never does.
ANSWER_LIMIT_S = 60.0
# Far more than any engine prints of its images.
MAX_OUTPUT_BYTES = 64 * 2**20
_CHUNK_BYTES = 2**20
# For a guardian to kill what a program started.
_END_LIMIT_S = 5.0


@dataclass(frozen=True)
class CommandResult:
    """Output of a program. ``code`` is ``None`` when it couldn't start or took too long; ``error`` is the reason."""

    code: int | None
    out: str
    error: str

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.code == 0

    @property
    def error_line(self) -> str:
        """The last line of its standard error."""
        lines = [line.strip() for line in self.error.splitlines() if line.strip()]
        # docker ends every refusal with an invitation to read its help.
        useful = [line for line in lines if not line.startswith(("Run 'docker", "See 'docker"))]
        return useful[-1] if useful else f"exit code {self.code}, no error output"


def run_command(argv: Sequence[str], limit_s: float = ANSWER_LIMIT_S, *, outlives: bool = False) -> CommandResult:
    """Run ``argv`` to its end, at most ``limit_s`` and ``MAX_OUTPUT_BYTES`` of output.

    Where this process is killed, the program and all that it started are killed too; one that ``outlives`` goes on,
    as it removes what would be left.
    """
    deadline_s = time.monotonic() + limit_s
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            argv if outlives else guarded_argv(argv), stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe
        )
    except FileNotFoundError:
        return CommandResult(None, "", f"{argv[0]} is not installed")
    except OSError as error:
        return CommandResult(None, "", f"{argv[0]}: {error.strerror}")
    with process:
        try:
            out, error_output = _outputs(process, deadline_s)
            process.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            return CommandResult(None, "", f"{argv[0]} did not respond within {limit_s:g} s")
        except OverflowError:
            return CommandResult(None, "", f"{argv[0]} printed more than {MAX_OUTPUT_BYTES} bytes")
        finally:
            if process.poll() is None and not outlives:  # its guardian kills all that it started
                process.send_signal(signal.SIGUSR2)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_END_LIMIT_S)
            process.kill()
    # Reversible, so that a digest can be taken over the output.
    return CommandResult(
        process.returncode, out.decode(errors="surrogateescape"), error_output.decode(errors="replace")
    )


def guarded_argv(argv: Sequence[str], mark: str = "-") -> tuple[str, ...]:
    """Command line of a guardian of ``argv`` with ``mark`` (``worker/guardian.py``). Raises ``OSError``."""
    if not is_program(argv[0]):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
    script = Path(pybench.__file__).parent / "worker" / "guardian.py"
    return (sys.executable, "-I", "-S", "-B", str(script), str(os.getpid()), mark, *argv)


def is_program(name: str) -> bool:
    """Whether a path, or a name on PATH, can be started. Raises ``OSError`` where the machine can't tell."""
    if os.sep not in name:
        return shutil.which(name) is not None
    try:
        mode = os.stat(name).st_mode  # noqa: PTH116 - Path.is_file takes a disk's error for an absent file
    except OSError as error:
        if is_machine_fault(error):
            raise
        return False
    return stat.S_ISREG(mode) and os.access(name, os.X_OK)


def _outputs(process: subprocess.Popen[bytes], deadline_s: float) -> tuple[bytearray, bytearray]:
    """Standard output and error to their ends. Raises ``TimeoutExpired``, and ``OverflowError`` for too much of it."""
    streams = (stream for stream in (process.stdout, process.stderr) if stream is not None)
    outputs = {stream.fileno(): bytearray() for stream in streams}
    with selectors.DefaultSelector() as open_streams:
        for file in outputs:
            open_streams.register(file, selectors.EVENT_READ)
        while open_streams.get_map():
            ready = open_streams.select(max(0.0, deadline_s - time.monotonic()))
            if not ready:
                raise subprocess.TimeoutExpired(process.args, deadline_s)
            for key, _ in ready:
                chunk = os.read(key.fd, _CHUNK_BYTES)
                outputs[key.fd] += chunk
                if not chunk:
                    open_streams.unregister(key.fd)
            if max(map(len, outputs.values())) > MAX_OUTPUT_BYTES:
                raise OverflowError
    out, error_output = outputs.values()
    return out, error_output
