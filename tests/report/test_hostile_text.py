"""Text of somebody else's results in every report format: it steers no terminal, makes no element and no link."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from pybench.files.run.results_file import read_results
from pybench.model.results import Estimate, Results
from pybench.report.formats import FORMATS, export, render, render_bytes
from pybench.report.run.view import RunView
from tests.builders import MANIFEST
from tests.report.conftest import HOSTILE

KEPT = Path(__file__).parents[2] / "suites" / "measured" / "tp_scaling-h200x4-20261121.json"
EVIL = f"\x9b31m\u2066{HOSTILE} http://evil.example www.evil.example a@b.example\u2028"
# What formats look up in pybench's own tables.
_OWN_WORDS = {"metric", "unit", "finished_utc", "created_utc"}
STEP = Estimate(value=0.5, low=None, high=None, unit="s", medians=(0.5,))


def poisoned(value: Any) -> Any:
    """Each text that a file may hold freely gains hostile text; equal ones stay equal."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        hints = get_type_hints(type(value))
        free = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.name not in _OWN_WORDS}
        return dataclasses.replace(
            value, **{name: poisoned(inside) for name, inside in free.items() if "Literal" not in str(hints[name])}
        )
    if isinstance(value, tuple):
        return tuple(map(poisoned, value))
    if isinstance(value, dict):
        return {key: poisoned(inside) for key, inside in value.items()}
    return f"{value}{EVIL}" if isinstance(value, str) else value


@pytest.fixture(scope="module")
def evil() -> Results:
    kept = read_results(KEPT)
    finished = dataclasses.replace(kept.provenance, finished_utc="2026-11-21T09:00:00+00:00")
    timed = [dataclasses.replace(p, metrics={**p.metrics, "step_s": STEP}) for p in kept.points if p.status == "ok"]
    rest = [p for p in kept.points if p.status != "ok"]
    found: Results = poisoned(dataclasses.replace(kept, provenance=finished, points=(*timed, *rest)))
    assert EVIL in found.reason
    assert EVIL in found.points[0].id
    return found


def written(name: str, results: Results, folder: Path) -> str:
    """Everything that a format writes."""
    # Formats of attempts refuse results without a folder; this one has no attempt.
    view = RunView(results=results, manifest=MANIFEST if name == "perfetto" else None)
    match FORMATS[name].output:
        case "text":
            return render(view, name)
        case "bytes":
            return render_bytes(view, name).decode("utf-8", errors="replace")
        case "folder":
            export(view, name, folder)
            return "".join(
                path.read_bytes().decode("utf-8", errors="replace")
                for path in sorted(folder.rglob("*"))
                if path.is_file()
            )


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_no_character_steers_a_terminal_or_turns_a_line(name: str, evil: Results, tmp_path: Path) -> None:
    """Also in files: who prints one reads what is in it. Binary formats hold other bytes than text."""
    text = written(name, evil, tmp_path / "out")
    steering = {"\x1b", "\x9b", "\u202e", "\u2066", "\u2028"} & set(text)
    assert steering == set()
    if FORMATS[name].output == "text":
        assert [char for char in set(text) if not char.isprintable() and char not in "\r\n"] == []


@pytest.mark.parametrize("name", ["html", "junit", "markdown"])
def test_no_element_and_no_link(name: str, evil: Results, tmp_path: Path) -> None:
    text = written(name, evil, tmp_path / "out")
    assert "<script>&amp;" not in text
    if name == "markdown":
        plain = re.sub(r"`[^`\n]*`", "", text)
        assert [link for link in ("[link](", "://", "www.", "@") if link in plain] == []
        assert "`www.evil.example`" in text
