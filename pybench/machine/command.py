"""Run another program to its end: its output, or in one line why there is none."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

# Generous: an engine that is busy with another client responds late, one that hangs never does.
ANSWER_LIMIT_S = 60.0


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
    """Run ``argv`` to its end, at most ``limit_s``."""
    try:
        done = subprocess.run(  # noqa: PLW1510 - a failure is a result
            argv, capture_output=True, stdin=subprocess.DEVNULL, timeout=limit_s
        )
    except FileNotFoundError:
        return CommandResult(None, "", f"{argv[0]} is not installed")
    except OSError as error:
        return CommandResult(None, "", f"{argv[0]}: {error.strerror}")
    except subprocess.TimeoutExpired:
        return CommandResult(None, "", f"{argv[0]} did not respond within {limit_s:g} s")
    # Reversible, so that a digest can be taken over the output.
    return CommandResult(
        done.returncode, done.stdout.decode(errors="surrogateescape"), done.stderr.decode(errors="replace")
    )
