"""What a run must measure, even where the machine lacks it: ``--require gpus=8,backend=vllm``."""

from __future__ import annotations

from dataclasses import dataclass

from pybench.model.backend import BACKENDS
from pybench.model.errors import UsageError


@dataclass(frozen=True)
class Required:
    """Points of up to ``num_gpus`` GPUs, and of these ``backends``, are missing where the machine can't run them."""

    num_gpus: int = 0
    backends: frozenset[str] = frozenset()


NOTHING_REQUIRED = Required()


def parse_required(text: str | None) -> Required:
    """Read ``gpus=N`` and ``backend=NAME``, separated by commas. Raises ``UsageError``."""
    num_gpus, backends = 0, set()
    for part in (text or "").split(",") if text else ():
        key, _, value = part.strip().partition("=")
        if key == "gpus" and value.isdecimal() and int(value) > 0:
            num_gpus = int(value)
        elif key == "backend" and value in BACKENDS:
            backends.add(value)
        else:
            valid = f"gpus=N or backend=NAME, with a name of {', '.join(BACKENDS)}"
            raise UsageError(f"--require: found {part.strip()!r}, valid: {valid}")
    return Required(num_gpus, frozenset(backends))
