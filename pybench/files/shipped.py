"""Where the suites and the image lock that come with pybench are."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import pybench
from pybench.files.toml_file import meant, names_beside, refuse
from pybench.model.decoder_shape import Architecture


def shipped_suites() -> Path:
    """Folder of the shipped suites."""
    return shipped_folder("suites")


def shipped_folder(name: str) -> Path:
    """Folder inside an installed wheel, or the checkout's top-level one of that name."""
    package = Path(pybench.__file__).parent
    inside = package / name
    return inside if inside.is_dir() else package.parent / name


def described_suites() -> dict[str, str]:
    """Subject of each shipped suite, by its bare name."""
    paths = sorted(shipped_suites().glob("*.toml"))
    return {path.stem: str(tomllib.loads(path.read_text())["description"]) for path in paths}


def find_suite(named: Path) -> Path:
    """The file ``named``, or the shipped suite of that bare name. Raises ``FileError`` naming the closest."""
    suites = {path.stem: path for path in sorted(shipped_suites().glob("*.toml"))}
    is_named_suite = is_bare(named) and named.name in suites
    try:
        named.lstat()
        return suites[named.name] if is_named_suite and named.is_dir() else named
    except FileNotFoundError as error:
        if is_named_suite:
            return suites[named.name]
        what = "neither a file nor a shipped suite" if is_bare(named) else "no such file"
        hint = meant(named, (*names_beside(named), *suites))
        raise refuse(named, f"{what}{hint}; `pybench plan` alone lists the shipped suites") from error
    except (OSError, ValueError):
        return named  # what is wrong with a file that is there is reported by its reader


def is_bare(named: Path) -> bool:
    """Whether it may be a shipped suite's name: one with a folder or an ending means a file."""
    return not named.suffix and len(named.parts) == 1


@dataclass(frozen=True, kw_only=True)
class Band:
    """How far below its prediction a speedup of a healthy machine lies at most, by kept runs."""

    fraction: float
    num_speedups: int
    num_machines: int


@cache
def load_bands() -> dict[str, Band]:
    """Bands by kind of parallelism. Read once a process."""
    text = resources.files("pybench").joinpath("data", "bands.toml").read_text(encoding="utf-8")
    return {kind: Band(**values) for kind, values in tomllib.loads(text).items()}


@cache
def load_durations() -> dict[str, dict[str, dict[str, float]]]:
    """Seconds of an attempt of kept runs, by kind of machine, number of GPUs and suite. Read once a process."""
    return tomllib.loads(resources.files("pybench").joinpath("data", "durations.toml").read_text(encoding="utf-8"))


@cache
def load_models() -> dict[str, Architecture]:
    """Hugging Face configs by model name, ``model_type`` included, in the file's order; read once."""
    text = resources.files("pybench").joinpath("data", "models.toml").read_text(encoding="utf-8")
    return {
        name: {key: value for key, value in table.items() if key != "source"}
        for name, table in tomllib.loads(text).items()
    }
