"""Run another program to its end: its output, or in one line why there is none."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

# Generous: an engine that is busy with another client responds late, one that hangs never does.
ANSWER_LIMIT_S = 60.0
# Far more than any engine prints of its images.
MAX_OUTPUT_BYTES = 64 * 2**20
_CHUNK_BYTES = 2**20


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


def run_command(argv: Sequence[str], limit_s: float = ANSWER_LIMIT_S) -> CommandResult:
    """Run ``argv`` to its end, at most ``limit_s`` and ``MAX_OUTPUT_BYTES`` of output."""
    deadline_s = time.monotonic() + limit_s
    try:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
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
            process.kill()
    # Reversible, so that a digest can be taken over the output.
    return CommandResult(
        process.returncode, out.decode(errors="surrogateescape"), error_output.decode(errors="replace")
    )


def _outputs(process: subprocess.Popen[bytes], deadline_s: float) -> tuple[bytearray, bytearray]:
    """Standard output and error to their ends. Raises ``TimeoutExpired``, and ``OverflowError`` for too much of it."""
    assert process.stdout is not None
    assert process.stderr is not None
    found = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    with selectors.DefaultSelector() as open_streams:
        for file in found:
            open_streams.register(file, selectors.EVENT_READ)
        while open_streams.get_map():
            ready = open_streams.select(max(0.0, deadline_s - time.monotonic()))
            if not ready:
                raise subprocess.TimeoutExpired(process.args, deadline_s)
            for key, _ in ready:
                chunk = os.read(key.fd, _CHUNK_BYTES)
                found[key.fd] += chunk
                if not chunk:
                    open_streams.unregister(key.fd)
            if max(map(len, found.values())) > MAX_OUTPUT_BYTES:
                raise OverflowError
    return found[process.stdout.fileno()], found[process.stderr.fileno()]
