"""Ask another program a question: its answer, or in one line why there is none."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

# Generous: an engine that is busy with another client answers late, one that hangs never.
ANSWER_LIMIT_S = 60.0


@dataclass(frozen=True)
class Answer:
    """What a program said. ``code`` is ``None`` when it couldn't start or took too long; ``error`` says so then."""

    code: int | None
    out: str
    error: str

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.code == 0

    @property
    def complaint(self) -> str:
        """Its last words on standard error, in one line."""
        lines = [line.strip() for line in self.error.splitlines() if line.strip()]
        # docker ends every refusal with an invitation to read its help.
        told = [line for line in lines if not line.startswith(("Run 'docker", "See 'docker"))]
        return told[-1] if told else f"exit code {self.code} without a word"


def ask(argv: Sequence[str], limit_s: float = ANSWER_LIMIT_S) -> Answer:
    """Run ``argv`` to its end, at most ``limit_s``."""
    try:
        done = subprocess.run(  # noqa: PLW1510 - failing is an answer
            argv, capture_output=True, stdin=subprocess.DEVNULL, timeout=limit_s
        )
    except FileNotFoundError:
        return Answer(None, "", f"{argv[0]} is not installed")
    except OSError as error:
        return Answer(None, "", f"{argv[0]}: {error.strerror}")
    except subprocess.TimeoutExpired:
        return Answer(None, "", f"{argv[0]} gave no answer within {limit_s:g} s")
    # Reversible, so that a digest can be taken over what was said.
    return Answer(done.returncode, done.stdout.decode(errors="surrogateescape"), done.stderr.decode(errors="replace"))
