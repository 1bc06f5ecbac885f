"""The shipped ``quick_check`` through the command, on CPU ranks of which one computes wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("transformers")

from pybench.cli.main import main
from tests.faulty_python import faulty_python

# Two updates of one layer have 14 products.
_PRODUCTS_OF_A_STEP = 14


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("after", "subject"), [(0, "rank 0, rank 1"), (_PRODUCTS_OF_A_STEP, "rank 1")])
def test_a_rank_that_corrupts_data_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, subject: str
) -> None:
    """One bit of its products is wrong: always, so that two ranks only disagree, or later, against its own results."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["run", "quick_check", "--python", str(faulty_python(tmp_path, after))])
    assert done.exit_code == 1, done.output
    (path,) = tmp_path.glob("runs/*/results.json")
    results = json.loads(path.read_text())
    assert {point["status"] for point in results["points"]} == {"ok"}
    wrong = [(check["name"], check["subject"]) for check in results["node"] if check["verdict"] == "fail"]
    assert ("checksum", subject) in wrong
