"""Claims in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pybench.core.verdict import ONE_ATTEMPT
from pybench.model.results import ClaimResult, Estimate, Results
from pybench.report.run.terminal import render
from pybench.report.run.view import RunView
from pybench.report.run.work import claim_table

METRIC = "energy_j_per_output_token"


def claimed(results: Results, found: Estimate, *, state: str = "open", **changed: Any) -> Results:
    """The hand-made results with one claim, of the second point over the first."""
    first, second, *_ = results.points
    given: dict[str, Any] = {"minimum": None, "maximum": 1.0, "table": None, "widening_along": None, **changed}
    claim = ClaimResult(
        **{"benchmark": "decode", "metric": METRIC, "point_id": second.id, "baseline_id": first.id, **given},
        found=found,
        state=state,  # type: ignore[arg-type]
        source="a paper",
    )
    return replace(results, claims=(claim,))


def cells(results: Results) -> dict[str, str]:
    """Of the claim, with whole ids but of the first point."""
    table = claim_table(results, {results.points[0].id: "TP 1"})
    (row,) = table.rows
    return dict(zip(table.heads, row, strict=True))


def ratio(value: float, low: float | None = None, high: float | None = None) -> Estimate:
    """A ratio with its interval."""
    return Estimate(value=value, low=low, high=high, unit="x")


@pytest.mark.parametrize(
    ("limits", "table", "words"),
    [
        ((None, 1.0), None, "below TP 1"),
        ((2.0, None), None, "above 2 x TP 1"),
        ((None, 0.7), None, "below 0.7 x TP 1"),
        ((2.0, None), "a_guide", "≥ 2"),  # a speedup over the point's own baseline
        ((2.0, 3.0), "a_guide", "2 - 3"),
    ],
)
def test_a_claim_of_a_suite_names_the_other_point(
    results: Results, limits: tuple[float | None, float | None], table: str | None, words: str
) -> None:
    """In the words of a comparison; a table's claim has limits."""
    minimum, maximum = limits
    found = cells(claimed(results, ratio(1.31), minimum=minimum, maximum=maximum, table=table))
    assert (found["claimed"], found["found"]) == (words, "1.310x")


def test_a_claim_of_a_figure_has_its_unit(results: Results) -> None:
    """Bytes of a guide's memory."""
    amount = Estimate(value=40 * 2**30, low=None, high=None, unit="bytes")
    given: dict[str, Any] = {
        "metric": "peak_memory_bytes",
        "baseline_id": None,
        "maximum": 50.0 * 2**30,
        "table": "a_guide",
    }
    found = cells(claimed(results, amount, **given))
    assert (found["claimed"], found["found"]) == ("≤ 50 GiB", "40 GiB")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (ratio(1.284), "rises 28.4 %"),
        (ratio(1.284, 1.201, 1.367), "rises 28.4 % [20.1, 36.7]"),
        (ratio(0.9, 0.85, 0.95), "falls 10.0 % [5.0, 15.0]"),
        (ratio(0.9, 0.75, 1.05), "falls 10.0 % [-5, 25]"),
        (ratio(1.0), "rises 0.0 %"),
    ],
)
@pytest.mark.parametrize(("minimum", "maximum", "way"), [(None, 1.0, "falls"), (1.0, None, "rises")])
def test_a_claim_that_a_distance_grows_has_the_way_of_the_ratio(
    results: Results, found: Estimate, words: str, minimum: float | None, maximum: float | None, way: str
) -> None:
    """The claim and the figure use the same words: no limit of a ratio, no ratio of ratios."""
    given: dict[str, Any] = {"minimum": minimum, "maximum": maximum, "widening_along": "batch_size"}
    shown = cells(claimed(results, found, **given))
    assert shown["claimed"] == f"ratio to decode {way} along batch_size"
    assert shown["found"] == words


@pytest.mark.parametrize(
    ("found", "state", "reason"),
    [
        (ratio(1.1), "open", ONE_ATTEMPT),
        (ratio(1.1, 0.9, 1.3), "open", "the interval holds the claim's limit; more attempts narrow it"),
        (ratio(1.1, 1.05, 1.15), "not kept", ""),
        (ratio(0.9, 0.85, 0.95), "kept", ""),
    ],
)
def test_an_open_claim_has_its_reason(results: Results, found: Estimate, state: str, reason: str) -> None:
    """One that is decided needs none."""
    shown = cells(claimed(results, found, state=state))
    assert (shown["state"], shown["reason"]) == (state, reason)


def test_a_claim_is_one_table_of_80_columns(results: Results) -> None:
    """Its metric is in the title, why it is open and who claims it below."""
    text = render(RunView(results=claimed(results, ratio(1.284), widening_along="batch_size")), width=80)
    assert text.partition(f"Claims of {METRIC}, which judge nothing\n")[2].partition("\n\n")[0].splitlines() == [
        "point        claimed                                 found         state",
        "────────────────────────────────────────────────────────────────────────",
        "decode TP 2  ratio to decode falls along batch_size  rises 28.4 %  open",
        f"    {ONE_ATTEMPT}",
        "    a paper",
    ]


def test_claims_of_several_metrics_name_them(results: Results) -> None:
    """No title could."""
    first = claimed(results, ratio(1.284))
    second = replace(first.claims[0], metric="output_tokens_per_s", minimum=1.0, maximum=None)
    text = render(RunView(results=replace(first, claims=(*first.claims, second))), width=80)
    assert "Claims, which judge nothing\n" in text
    assert "decode TP 2  output_tokens_per_s        above decode TP 1  1.284x  open" in text
