"""The documents of the project, and the commands and blocks in them."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
DOCUMENTS = sorted({*ROOT.glob("*.md"), *ROOT.glob("[!.]*/*.md"), *DOCS.glob("**/*.md")} - {*ROOT.glob("build/*.md")})
_BLOCK = re.compile(r"^```\w*\n(.*?)^```$|((?:^ {4}[^\n]*\n)+)", re.MULTILINE | re.DOTALL)
_PROGRAM = re.compile(r"(pybench|make|pip|python3?|git|docker|podman)( (?!=)|$)")
_PLACEHOLDER = re.compile(r"\b[A-Z]{2,}\b")
_INLINE = re.compile(r"`((?:pybench|make)(?: [^`\n]+)?)`")
_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name(document: Path) -> str:
    return str(document.relative_to(ROOT))


def written(document: Path) -> str:
    return document.read_text(encoding="utf-8").replace("\\|", "|")


def without_blocks(text: str) -> str:
    return _BLOCK.sub("", text)


def commands(text: str) -> Iterator[str]:
    """Lines of fenced or indented blocks behind a prompt or, where a block has none, that begin with a program."""
    for fenced, indented in _BLOCK.findall(text):
        lines = (fenced or dedent(indented)).splitlines()
        prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        for line in prompted or filter(_PROGRAM.match, lines):
            yield line.partition("  #")[0].rstrip()


def blocks(language: str) -> list[tuple[Path, str]]:
    return [
        (document, text)
        for document in DOCUMENTS
        for found, text in _FENCED.findall(document.read_text(encoding="utf-8"))
        if found == language
    ]


def extras() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return set(project["optional-dependencies"])


def is_a_target(command: str, _folder: Path | None = None) -> None:
    """``make -n`` accepts the target; ``make test`` can't run itself."""
    done = subprocess.run([*shlex.split(command), "-n"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ".venv/bin/" in done.stdout


SHOWN = {command for document in DOCUMENTS for command in commands(written(document))}
NAMED = {command for document in DOCUMENTS for command in _INLINE.findall(written(document))}
INCOMPLETE = {command for command in SHOWN if _PLACEHOLDER.search(command)}
"""Commands with a placeholder, which can't run."""
