"""Tables of docs/ that benchmarks write anew, each between two marks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

_DOCS = Path(__file__).parents[2] / "docs"


def write_table(page: str, name: str, rows: Sequence[Sequence[str]], capsys: pytest.CaptureFixture[str]) -> None:
    """Print a table and put it into its page. The first row has the heads."""
    heads, *others = rows
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in (heads, ["---"] * len(heads), *others))
    with capsys.disabled():
        print(f"\n{table}")
    marks = rf"(<!-- simulated: {name} -->\n).*?(<!-- end of simulated -->)"
    text = (_DOCS / page).read_text(encoding="utf-8")
    (_DOCS / page).write_text(re.sub(marks, rf"\1\n{table}\n\2", text, flags=re.DOTALL), encoding="utf-8")
