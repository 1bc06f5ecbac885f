"""The ranking of training points."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pybench.model.results import PointResult
from pybench.report.run.rows import training_table
from tests.builders import POINT_RESULT, RESULTS, estimate

UNITS = {"tokens_per_s": "tokens/s", "peak_memory_bytes": "bytes", "energy_j_per_token": "J/token"}


def point(name: str, **metrics: float) -> PointResult:
    figures = {metric: estimate(value, UNITS.get(metric, "")) for metric, value in metrics.items()}
    return replace(POINT_RESULT, id=name, benchmark=name, num_gpus=2, attempts=1, metrics=figures)


def rows(*points: PointResult) -> list[dict[str, Any]]:
    names = {point.id: point.id for point in points}
    table = training_table(replace(RESULTS, points=points), names)
    return [dict(zip(table.heads, row, strict=True)) for row in table.rows]


def test_the_fastest_comes_first_and_every_rank_has_its_own_order() -> None:
    """Less memory and less energy are better; equal figures share a place."""
    found = rows(
        point("a", tokens_per_s=100.0, peak_memory_bytes=2.0**30, energy_j_per_token=0.1),
        point("b", tokens_per_s=300.0, peak_memory_bytes=2.0**31, energy_j_per_token=0.2),
        point("c", tokens_per_s=200.0, peak_memory_bytes=2.0**30),
    )
    assert [(row["rank"], row["point"]) for row in found] == [("1", "b"), ("2", "c"), ("3", "a")]
    assert [row["rank by memory"] for row in found] == ["3", "1", "1"]
    assert [row["rank by energy"] for row in found] == ["2", "-", "1"]
    assert [row["memory"] for row in found] == ["2 GiB", "1 GiB", "1 GiB"]


def test_one_alone_has_no_place() -> None:
    """A point that alone has a figure has no rank either."""
    (alone,) = rows(point("a", tokens_per_s=100.0, peak_memory_bytes=2.0**30, energy_j_per_token=0.1))
    assert [alone[head] for head in ("rank", "rank by memory", "rank by energy")] == ["-"] * 3
    found = rows(point("a", tokens_per_s=2.0, peak_memory_bytes=2.0**30), point("b", tokens_per_s=1.0))
    assert [(row["rank"], row["rank by memory"]) for row in found] == [("1", "-"), ("2", "-")]


def test_what_is_unknown_is_a_dash() -> None:
    """Never a 0."""
    (row,) = rows(point("a", tokens_per_s=100.0, mfu_fraction=0.5))
    assert (row["MFU"], row["HFU"], row["energy"], row["loss"], row["exposed comm."]) == ("50.0 %", "-", "-", "-", "-")


def test_points_that_do_not_train_are_not_ranked() -> None:
    """Generation has a table of its own."""
    assert rows(point("a", output_tokens_per_s=1.0)) == []


def test_adapters_show_what_is_trained_of_the_model() -> None:
    """Where all is trained, there is nothing to show."""
    adapters = point("a", tokens_per_s=2.0, trained_parameters=6_815_744.0, trained_fraction=0.00085)
    found = rows(adapters, point("b", tokens_per_s=1.0, trained_parameters=8.03e9))
    assert [row["trained"] for row in found] == ["6,815,744 (0.085 %)", "-"]
