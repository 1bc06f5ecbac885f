"""Which packages a Python of this machine has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic import TypeAdapter, ValidationError

from pybench.machine.command import run_command
from pybench.model.host import Software

_CODE = (
    "import json, sys; from importlib.util import find_spec; "
    "print(json.dumps([name for name in sys.argv[1:] if find_spec(name) is None]))"
)


# Packages that are there without a record of their version count as absent, as they do for a worker.
_VERSIONS = """
import json, platform, sys
from importlib import metadata

def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None

found = {name: version(name) for name in sys.argv[1:]}
print(json.dumps([platform.python_version(), {name: text for name, text in found.items() if text is not None}]))
"""


_SOFTWARE = TypeAdapter(tuple[str, dict[str, str]])
_NAMES = TypeAdapter(list[str])


def python_software(python: str, names: Iterable[str]) -> Software | None:
    """Version of ``python`` and of those of ``names`` that it has; ``None`` where it prints anything else."""
    result = run_command((python, "-I", "-B", "-c", _VERSIONS, *names))
    try:
        version, packages = _SOFTWARE.validate_json(result.out, strict=True)
    except ValidationError:
        return None
    return Software(python=version, packages=packages)


def missing_packages(python: str, names: Sequence[str]) -> tuple[str, ...]:
    """``names`` that ``python`` can't find, without an import; none of them if it does not answer."""
    result = run_command((python, "-I", "-B", "-c", _CODE, *names))
    try:
        found = _NAMES.validate_json(result.out, strict=True) if result.ok else []
    except ValidationError:
        return ()
    return tuple(name for name in names if name in found)
