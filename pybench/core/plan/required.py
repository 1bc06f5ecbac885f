"""What a run must measure, even where the machine lacks it: ``--require gpus=8,nodes=2,backend=vllm``."""

from __future__ import annotations

from dataclasses import dataclass

from pybench.model.backend import BACKENDS
from pybench.model.errors import UsageError


@dataclass(frozen=True)
class Required:
    """What is missing where the hosts can't run it, instead of left out.

    Points of one host with up to ``num_gpus`` GPUs, points of several hosts up to ``num_nodes``, and of ``backends``.
    """

    num_gpus: int = 0
    backends: frozenset[str] = frozenset()
    num_nodes: int = 1


NOTHING_REQUIRED = Required()


def parse_required(text: str | None) -> Required:
    """Read ``gpus=N``, ``nodes=N`` and ``backend=NAME``, separated by commas. Raises ``UsageError``."""
    num_gpus, num_nodes, backends = 0, 1, set()
    for part in (text or "").split(",") if text else ():
        key, _, value = part.strip().partition("=")
        if key == "gpus" and value.isdecimal() and int(value) > 0:
            num_gpus = int(value)
        elif key == "nodes" and value.isdecimal() and int(value) > 0:
            num_nodes = int(value)
        elif key == "backend" and value in BACKENDS:
            backends.add(value)
        else:
            valid = f"gpus=N, nodes=N or backend=NAME, with a name of {', '.join(BACKENDS)}"
            raise UsageError(f"--require: found {part.strip()!r}, valid: {valid}")
    return Required(num_gpus, frozenset(backends), num_nodes)
