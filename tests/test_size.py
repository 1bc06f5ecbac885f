"""The package does not grow: a ceiling of lines and files for each folder, which commits only lower."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import pybench
from tests.test_floors import imports, is_face, modules

PACKAGE = Path(pybench.__file__).parent
CEILINGS = {
    "": (46, 1),
    "cli": (1649, 11),
    "core": (7220, 42),
    "evidence": (1139, 8),
    "explain": (1792, 12),
    "files": (2769, 17),
    "fleet": (1444, 9),
    "machine": (1464, 12),
    "model": (5100, 29),
    "nightly": (3354, 18),
    "power": (4034, 22),
    "report": (3782, 36),
    "run": (6873, 40),
    "worker": (9267, 73),
}
"""Lines and modules at most. A folder that needs more takes them from another one in the same commit."""
SUM = (49933, 330)
SMALL_LINES = 60
NUM_SMALL = 9
"""Modules below ``SMALL_LINES`` lines with one importer or none. Tables load six of them by name."""


def sizes() -> dict[str, tuple[int, int]]:
    """Lines and modules of each folder of the package."""
    counted: dict[str, list[int]] = defaultdict(list)
    for path in modules(PACKAGE).values():
        room = path.relative_to(PACKAGE).parts[0] if path.parent != PACKAGE else ""
        counted[room].append(len(path.read_text(encoding="utf-8").splitlines()))
    return {room: (sum(lines), len(lines)) for room, lines in counted.items()}


@pytest.mark.parametrize("room", sorted(CEILINGS))
def test_no_folder_grows(room: str) -> None:
    """More lines or modules than its ceiling fail; a smaller folder gets a lower ceiling by hand."""
    lines, files = sizes()[room]
    assert (lines <= CEILINGS[room][0], files <= CEILINGS[room][1]) == (True, True), f"{lines} lines, {files} modules"


def test_the_package_does_not_grow() -> None:
    """Every folder has a ceiling, and together they are below the package's."""
    found = sizes()
    assert found.keys() == CEILINGS.keys()
    assert sum(lines for lines, _ in found.values()) <= SUM[0]
    assert sum(files for _, files in found.values()) <= SUM[1]


def test_small_modules_have_two_importers() -> None:
    """A small module that one other module uses is a part of that one."""
    paths, used = modules(PACKAGE), imports(PACKAGE)
    small = [
        name
        for name, path in paths.items()
        if path.name != "__init__.py"
        and len(path.read_text(encoding="utf-8").splitlines()) < SMALL_LINES
        and sum(name in targets for targets in used.values()) < 2
    ]
    assert len(small) <= NUM_SMALL, "\n".join(small)


def test_folders_do_not_import_each_other() -> None:
    """An arrow between two folders has one direction. A folder and the folders in it are one."""
    arrows = set(_arrows())
    both = [(a, b) for a, b in arrows if a < b and (b, a) in arrows]
    assert [(outer, inner) for outer, inner in both if not inner.startswith(f"{outer}.")] == []


def _arrows() -> Iterator[tuple[str, str]]:
    paths = modules(PACKAGE)
    folders = {name: name if path.name == "__init__.py" else name.rpartition(".")[0] for name, path in paths.items()}
    for module, targets in imports(PACKAGE).items():
        # The list of all commands, and what serves a command: the top floor.
        if module == "pybench.cli.main" or is_face(module):
            continue
        for target in targets & paths.keys():
            if folders[module] != folders[target] != "pybench" != folders[module]:
                yield folders[module], folders[target]
