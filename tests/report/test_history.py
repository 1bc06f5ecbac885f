"""A history of runs for people, and for pandas and DuckDB."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from pybench.nightly.history import History, series_of
from pybench.nightly.history_text import csv_text, render, skipped
from pybench.report.text.change_words import sparkline
from tests.runs_against_runs import nights, run


def test_every_row_has_its_trend_in_80_columns() -> None:
    """Runs that are left out are listed above it, each with its reason."""
    runs = nights(30)
    other = run(run_id="x", suite="other", created_utc="2026-09-01T00:00:00+00:00")
    history = History(folder=Path("runs"), runs=(other, *runs), skipped=(("x.json", "cut short"),))
    text = render(history, series_of(history.runs, runs[-1]))
    lines = text.splitlines()
    assert lines[:3] == [
        "s: 30 runs, 2026-10-01 to 2026-10-30",
        "other suites: other (1)",
        "skipped: x.json: cut short",
    ]
    assert max(map(len, lines)) <= 80
    (row,) = [line for line in lines if line.startswith("TP 2   speed")]
    assert row.endswith(" %")
    assert len(row.split()[3]) == 30


def test_a_reason_of_several_entries_is_stated_once() -> None:
    """Five reasons are shown, whatever number of entries has one of them."""
    entries = [(f"{number}.json", "a link") for number in range(9)]
    others = [(f"{name}.json", f"cut at {name}") for name in "abcdef"]
    history = History(folder=Path("runs"), runs=(), skipped=(*entries, *others))
    assert [*skipped(history)] == [
        "skipped: 0.json, 1.json, 2.json and 6 more: a link",
        *(f"skipped: {name}.json: cut at {name}" for name in "abcd"),
        "skipped: 2 more",
    ]


def test_runs_that_differ_are_counted() -> None:
    """One in the singular; a run that measured nothing is no old one."""
    one = run(run_id="a", created_utc="2026-09-01T00:00:00+00:00", driver='"1"')
    history = History(folder=Path("runs"), runs=(one, run(run_id="b")))
    lines = render(history, series_of(history.runs, history.runs[-1])).splitlines()
    assert lines[1] == "left out: 1 run that differs in driver: 1 -> 580.1"
    assert lines[2].startswith("no figures of attempts: nothing was measured, or ")


def test_a_sparkline_spans_at_least_two_percent() -> None:
    """Noise does not look like news; a gap is a dot; many values share a column."""
    assert sparkline([100.0, 100.0]) == "▅▅"
    assert sparkline([100.0, None, 104.0, 96.0]) == "▅·█▁"
    assert sparkline([99.9, 100.1]) == "▄▅"
    assert {sparkline([number / 7]) for number in range(1, 1000)} == {"▅"}
    assert len(sparkline([1.0] * 1000, 30)) == 30
    assert sparkline([None, None]) == ""


def test_pandas_and_duckdb_read_the_csv(tmp_path: Path) -> None:
    """The queries that docs/nightly.md shows, with the same answers as by hand."""
    import duckdb  # noqa: PLC0415 - both take a second, in every process that only collects tests
    import pandas as pd  # noqa: PLC0415

    runs = nights(5)
    text = csv_text(runs)
    frame = pd.read_csv(io.StringIO(text), parse_dates=["created_utc"])
    assert len(frame) == 5 * 2 * 2
    wide = frame.pivot_table(index="created_utc", columns=["point", "metric"], values="value")
    mine = runs[2].points[1].medians["output_tokens_per_s"]
    assert wide[runs[2].points[1].id, "output_tokens_per_s"].iloc[2] == sorted(mine)[1]
    (tmp_path / "history.csv").write_text(text)
    query = f"""
        SELECT point, metric, median(value), count(*) FROM '{tmp_path}/history.csv'
        WHERE keys->>'$.driver' = '"580.1"' GROUP BY ALL ORDER BY ALL
    """
    found = duckdb.execute(query).fetchall()
    assert [row[3] for row in found] == [5] * 4
    values = sorted(one.points[0].medians["energy_j_per_output_token"][0] for one in runs)
    assert found[0][:2] == ("decode[tensor_parallel=1]", "energy_j_per_output_token")
    assert found[0][2] == pytest.approx(values[2])
