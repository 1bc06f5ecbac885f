"""From results to the figures that other runs are compared with."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from pybench.core.keys import run_figures
from pybench.model.results import Estimate, Results
from pybench.model.suite import Plan, Skip
from tests.api import judged
from tests.builders import MANIFEST
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("nightly.figures")


def _results(build: Any) -> Results:
    """Two points; the second failed; a third was skipped."""
    one, two = build.generate(1), build.generate(2)
    skip = Skip(id="s", benchmark="decode", axes={}, num_gpus=8, reason="8 GPUs wanted, 4 are here")
    manifest = replace(MANIFEST, plan=Plan(points=(one, two), skips=(skip,)))
    records = [*build.measured(one, [[1.0, 1.1, 1.3], [2.0, 2.0, 2.0]]), build.failed(two, cause="engine")]
    return judged(manifest, records)


def test_a_figure_is_the_median_step_of_each_attempt(build: Any) -> None:
    """40 tokens in 1.1 s and in 2 s."""
    one, two, skipped = run_figures(_results(build)).points
    assert one.medians["output_tokens_per_s"] == (40 / 1.1, 20.0)
    assert "step_s" not in one.medians
    assert one.digest == build.generate(1).digest
    assert two.medians == skipped.medians == {}
    assert two.absence is not None
    assert two.absence.startswith("engine")
    assert skipped.absence == "8 GPUs wanted, 4 are here"
    assert (one.is_missing, two.is_missing, skipped.is_missing) == (False, True, False)


def test_other_metrics_are_there_by_wish(build: Any) -> None:
    """A step's time says the same as the throughput."""
    assert run_figures(_results(build), ["step_s"]).points[0].medians["step_s"] == (1.1, 2.0)


def test_headlines_alone_are_watched(build: Any) -> None:
    """A results.json can lack the time of a step."""
    point = _results(build).points[0]
    found = Estimate(value=1.0, low=None, high=None, unit="s", medians=(1.0,))
    names = ("output_tokens_per_s", "samples_per_s")
    bare = replace(point, metrics=dict.fromkeys(names, found))
    (figures,) = run_figures(replace(_results(build), points=(bare,))).points
    assert set(figures.medians) == set(names)


def test_keys_are_machine_software_and_suite(build: Any) -> None:
    """By the names that --across takes."""
    keys = run_figures(_results(build)).keys
    assert keys["driver"] == '"580.1"'
    assert keys["power_limit"] == "[700.0]"
    assert keys["torch"] == "2.11.0"
    assert keys["image"] == "[]"
    assert (keys["suite"], keys["engine"], keys["profile"]) == ("s", "none", "none")


def test_a_value_that_is_no_number_is_no_figure(build: Any) -> None:
    """A results.json can hold NaN."""
    results = _results(build)
    damaged = Estimate(value=math.nan, low=None, high=None, unit="s", medians=(math.nan,))
    points = [replace(results.points[0], metrics={"ttft_s": damaged})]
    (point,) = run_figures(replace(results, points=tuple(points))).points
    assert point.medians == {}
    assert point.absence is not None


def test_results_without_medians_say_how_to_get_them(build: Any) -> None:
    """Figures of an older pybench."""
    results = _results(build)
    old = {name: replace(found, medians=()) for name, found in results.points[0].metrics.items()}
    (point,) = run_figures(replace(results, points=(replace(results.points[0], metrics=old),))).points
    assert point.absence == SENTENCES["results_without_medians_say_how_to"]
