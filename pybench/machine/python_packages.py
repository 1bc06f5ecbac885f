"""Which packages a Python of this machine lacks."""

from __future__ import annotations

import json
from collections.abc import Iterable

from pybench.machine.command import run_command

_CODE = (
    "import json, sys; from importlib.util import find_spec; "
    "print(json.dumps([name for name in sys.argv[1:] if find_spec(name) is None]))"
)


def missing_packages(python: str, names: Iterable[str]) -> tuple[str, ...]:
    """Those of ``names`` that ``python`` can't find, without importing any.

    None of them where it can't be started: starting a worker then reports why.
    """
    result = run_command((python, "-I", "-B", "-c", _CODE, *names))
    try:
        return tuple(json.loads(result.out)) if result.ok else ()
    except ValueError:
        return ()
