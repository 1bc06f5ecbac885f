"""Where the suites and the image lock that come with pybench are."""

from __future__ import annotations

from pathlib import Path

import pybench
from pybench.store.text_file import nearby, refuse
from pybench.store.toml.problem_text import did_you_mean


def shipped_suites() -> Path:
    """Folder of the shipped suites: inside an installed wheel, or the checkout's top-level ``suites``."""
    return _shipped("suites")


def shipped_containers() -> Path:
    """Folder of the image lock and the Dockerfiles, found likewise."""
    return _shipped("containers")


def _shipped(name: str) -> Path:
    package = Path(pybench.__file__).parent
    inside = package / name
    return inside if inside.is_dir() else package.parent / name


def find_suite(named: Path) -> Path:
    """The file ``named``, or the shipped suite of that bare name (``tp_scaling``).

    Raises ``FileError`` naming the shipped suites, and those nearby, when there is neither.
    """
    try:
        named.stat()
    except FileNotFoundError:
        return _shipped_suite(named)
    except (OSError, ValueError):
        pass  # what is wrong with a file that is there is reported by its reader
    return named


def _shipped_suite(named: Path) -> Path:
    suites = {path.stem: path for path in sorted(shipped_suites().glob("*.toml"))}
    # A name with a folder or an ending means a file.
    if named.suffix or len(named.parts) != 1:
        raise refuse(named, f"no such file{nearby(named)}; shipped are {', '.join(suites)}, each by its bare name")
    if named.name in suites:
        return suites[named.name]
    hint = did_you_mean(named.name, suites)
    raise refuse(named, f"neither a file nor a shipped suite{hint}; shipped are {', '.join(suites)}")
