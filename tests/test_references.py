"""Names in docstrings, such as ``:func:`~pybench.module.name```, exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pybench

ROOT = Path(pybench.__file__).parents[1]
_REFERENCE = re.compile(r":(?:attr|class|data|func|meth|mod):`~?(pybench\.[\w.]+)`")


def names(path: Path) -> set[str]:
    """All names that a module defines, at any depth."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def is_there(reference: str) -> bool:
    """Whether it is a module or a room, or a name that one of them defines."""
    parts = reference.split(".")
    for number in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:number])
        module = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        if module.exists():
            return set(parts[number:]) <= names(module)
    return False


def dangling(text: str) -> list[str]:
    """References of a text that lead nowhere."""
    return [reference for reference in _REFERENCE.findall(text) if not is_there(reference)]


def test_references_lead_somewhere() -> None:
    """What moves takes its mention along."""
    modules = sorted((ROOT / "pybench").rglob("*.py"))
    found = {f"{path.relative_to(ROOT)}": dangling(path.read_text(encoding="utf-8")) for path in modules}
    assert {path: references for path, references in found.items() if references} == {}


def test_the_check_can_fail() -> None:
    """A module, a function and a member that are there, and one each that is not."""
    text = """
    :mod:`pybench.model.wire` :class:`~pybench.model.wire.Step` :attr:`~pybench.model.wire.Step.duration_ns`
    :mod:`pybench.model.gone` :func:`pybench.model.wire.gone` :attr:`~pybench.model.wire.Step.gone`
    """
    assert dangling(text) == ["pybench.model.gone", "pybench.model.wire.gone", "pybench.model.wire.Step.gone"]
