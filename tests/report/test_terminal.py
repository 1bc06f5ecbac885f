"""The terminal report."""

from __future__ import annotations

import dataclasses
import re

import pytest
from rich.cells import cell_len

from pybench.model.results import Results, Verdict
from pybench.report.labels import labels
from pybench.report.provenance import sentence
from pybench.report.terminal import render

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("width", [80, 120, 160, 400])
def test_fits_its_width(results: Results, width: int) -> None:
    """All but the verdict, which is one line whatever its length."""
    lines = render(results, width=width).splitlines()
    assert max(cell_len(line) for line in lines[:-1]) <= width
    assert lines[-1] == f"verdict: fail - {results.reason}"


@pytest.mark.parametrize("width", [80, 160])
def test_numbers_and_words_stay_in_one_piece(results: Results, width: int) -> None:
    """A table that is too wide goes on below instead of breaking its cells."""
    text = render(results, width=width)
    for whole in ("12,346 tok/s [12,300, 12,400]", "12.35 mJ/token", "456.8 W", "inconclusive", "no_expectation"):
        assert whole in text


@pytest.mark.parametrize("width", [80, 160])
def test_every_point_and_its_reason_is_there(results: Results, width: int) -> None:
    """Skipped, failed and missing points are never dropped."""
    text = render(results, width=width)
    for label in labels(results.points).values():
        assert label in text
    words = " ".join(re.sub(r"[│┃]", " ", text).split())
    for reason in ("needs 8 GPUs, found 4", "not measured", "out_of_memory: tried"):
        assert reason in words


def test_narrow_terminals_lose_nothing_but_beauty(results: Results) -> None:
    """A width that no table fits raises nothing."""
    assert render(results, width=20).endswith(f"verdict: fail - {results.reason}\n")


@pytest.mark.parametrize("term", ["xterm-256color", "dumb", ""])
def test_colour_adds_no_word(results: Results, monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    """Without its escape codes, the coloured report is the plain one, whatever the environment says."""
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", "40")
    coloured = render(results, color=True)
    assert "\x1b[32mpass" in coloured
    assert render(results) == _ANSI.sub("", coloured)


def test_plain_report_has_no_escape_code_even_from_a_worker(hostile: Results) -> None:
    """Nor control characters, nor text that turns direction; rich's own markup is shown as it stands."""
    text = render(hostile)
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "[bold]x[/bold]" in text


def test_last_line_names_every_verdict(empty: Results, verdicts: tuple[Verdict, ...]) -> None:
    """Also of a run that shows nothing else."""
    head = f"suite on cpu, run run\n{sentence(empty.provenance)}\n\n"
    for verdict in verdicts:
        text = render(dataclasses.replace(empty, verdict=verdict))
        assert text == f"{head}verdict: {verdict} - nothing was measured\n"
