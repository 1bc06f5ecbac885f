"""A wrong but fast strategy must not pass."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pybench.core.counts import overall
from pybench.core.loss_curve import NUM_STEPS, loss_checks
from pybench.core.measurements import Measurements
from pybench.model.suite import Plan
from pybench.model.verdict import Counts
from pybench.model.wire import Failure, Work
from tests.build import Build
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("core.loss_curve")

CURVE = (11.8, 9.0, 6.0, 3.0, 1.0, 0.5)


def measured(build: Build, point: Any, curve: tuple[float, ...], samples: int = 8, **more: Any) -> Any:
    steps = build.steps([1.0, 1.0], Work(samples=samples))
    rank = dataclasses.replace(build.rank(steps), losses=curve)
    return build.record(point, (rank,), **more)


def trained(build: Build, degree: int, **settings: Any) -> Any:
    point = build.train(degree)
    values = {"dtype": "float32", "batch_size_per_gpu": None, "global_batch_size": 8, **settings}
    return dataclasses.replace(point, settings=dataclasses.replace(point.settings, **values))


def checks(*pairs: Any) -> Any:
    return loss_checks(
        Measurements.of(Plan(points=tuple(point for point, _ in pairs), skips=()), [record for _, record in pairs])
    )


def test_the_same_loss_passes(build: Build) -> None:
    """Within a thousandth of the baseline's distance in float32; the baseline itself has no row."""
    one, two = trained(build, 1), trained(build, 2)
    (row,) = checks((two, measured(build, two, (11.81, *CURVE[1:]))), (one, measured(build, one, CURVE)))
    assert (row.point_id, row.metric, row.verdict) == (two.id, "loss_deviation", "pass")
    assert row.maximum == pytest.approx(1e-3 * (11.8 - 1.0) / 11.8)
    assert row.value.value == pytest.approx(0.01 / 11.8)
    assert row.reason == SENTENCES["the_same_loss_passes"]


def test_a_strategy_that_computes_something_else_fails(build: Build) -> None:
    """At the worst of the first steps, and with it the run."""
    one, two = trained(build, 1), trained(build, 2)
    (row,) = checks((one, measured(build, one, CURVE)), (two, measured(build, two, (11.8, 9.0, 6.5, 3.1, 1.0, 0.5))))
    assert row.verdict == "fail"
    assert row.reason == SENTENCES["a_strategy_that_computes_something"]
    verdict, reason = overall([], [], [row], counts=Counts())
    assert (verdict, reason) == ("fail", f"{two.id}: loss_deviation: {row.reason}")


def test_16_bit_types_have_their_own_tolerance(build: Build) -> None:
    """Also those that only compute in one."""
    curve = (11.9, *CURVE[1:])
    for settings in ({"dtype": "bfloat16"}, {"strategy": "fsdp", "mixed_precision": "bfloat16"}):
        one, two = trained(build, 1, **settings), trained(build, 2, **settings)
        (row,) = checks((one, measured(build, one, CURVE)), (two, measured(build, two, curve)))
        assert (row.verdict, row.maximum) == ("pass", pytest.approx(2e-2 * (11.8 - 1.0) / 11.8))


ADAPTED = (11.8, 11.79, 11.75, 11.65, 11.5)
"""A loss that moved by 2.5 % of the first."""


@pytest.mark.parametrize(
    ("curve", "verdict"),
    [
        ((11.8, 11.79, 11.75, 11.651, 11.501), "pass"),
        ((11.8, 11.79, 11.74, 11.61, 11.4), "fail"),
        ((11.8,) * 5, "fail"),
    ],
)
def test_a_loss_that_moves_little_is_held_to_its_own_way(build: Build, curve: Any, verdict: str) -> None:
    """Copies that learn alone, or an optimizer that does nothing, lie well within 2 % of the first loss."""
    adapters = {"dtype": "bfloat16", "lora_rank": 8}
    one, two = trained(build, 1, **adapters), trained(build, 2, **adapters)
    (row,) = checks((one, measured(build, one, ADAPTED)), (two, measured(build, two, curve)))
    assert (row.verdict, row.maximum) == (verdict, pytest.approx(2e-2 * 0.3 / 11.8))


def test_a_loss_that_hardly_moved_shows_nothing(build: Build) -> None:
    """Agreement is no pass there, and the remedy is named; a curve beyond all noise fails all the same."""
    one, two, four = (trained(build, degree, dtype="bfloat16") for degree in (1, 2, 4))
    still = (11.8, 11.8, 11.799, 11.798, 11.797)
    pairs = [(one, still), (two, still), (four, (11.8, 11.79, 11.7, 11.6, 11.5))]
    shown, astray = checks(*((point, measured(build, point, curve)) for point, curve in pairs))
    assert (shown.verdict, shown.maximum) == ("inconclusive", 2e-4)
    assert shown.reason.endswith(
        "moved by 0.0003 of the first in these steps, and 0.01 would show another training: set a larger learning_rate"
    )
    assert astray.verdict == "fail"


def test_only_steps_that_both_have_count(build: Build) -> None:
    """A curve that ended before the baseline moved shows nothing."""
    one, two = trained(build, 1), trained(build, 2)
    (row,) = checks((one, measured(build, one, CURVE)), (two, measured(build, two, CURVE[:1])))
    assert row.verdict == "inconclusive"


def test_a_loss_that_rose_allows_no_more_than_before(build: Build) -> None:
    """A tenfold loss is no way to be near to."""
    one, two = trained(build, 1), trained(build, 2)
    (row,) = checks((one, measured(build, one, (1.0, 11.0))), (two, measured(build, two, (1.0, 11.002))))
    assert (row.verdict, row.maximum) == ("fail", 1e-3)


def test_later_steps_do_not_count(build: Build) -> None:
    """Rounding grows with every update."""
    one, two = trained(build, 1), trained(build, 2)
    late = (*CURVE[:NUM_STEPS], 99.0)
    (row,) = checks((one, measured(build, one, CURVE)), (two, measured(build, two, late)))
    assert row.verdict == "pass"


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"sequence_tokens": 50}, {"lora_rank": 8}, {"learning_rate": 0.5}, {"model": "n"}]
)
def test_another_training_is_another_group(build: Build, change: dict[str, Any]) -> None:
    """Nothing to hold it against."""
    one, two = trained(build, 1), trained(build, 2, **change)
    assert checks((one, measured(build, one, CURVE)), (two, measured(build, two, (1.0,)))) == ()


def test_another_effective_batch_is_another_group(build: Build) -> None:
    """As in weak scaling: the worker reports the samples of a step."""
    one, two = trained(build, 1), trained(build, 2)
    assert checks((one, measured(build, one, CURVE)), (two, measured(build, two, (1.0,), samples=16))) == ()


def test_the_worst_attempt_decides(build: Build) -> None:
    """An attempt that failed, or reported no loss, decides nothing."""
    one, two = trained(build, 1), trained(build, 2)
    broken = build.record(two, (), failure=Failure(cause="signal", message=""))
    plan = Plan(points=(one, two, build.generate()), skips=())
    records = [
        measured(build, one, CURVE),
        broken,
        measured(build, two, ()),
        measured(build, two, (12.8,), attempt=2),
        measured(build, two, CURVE, attempt=3),
    ]
    (row,) = loss_checks(Measurements.of(plan, records))
    assert row.verdict == "fail"


def test_a_guard_that_passes_shows_nothing_by_itself(build: Build) -> None:
    """A suite that expects a speedup and could not judge it has not passed."""
    one, two = trained(build, 1), trained(build, 2)
    (row,) = checks((one, measured(build, one, CURVE)), (two, measured(build, two, CURVE)))
    assert row.verdict == "pass"
    assert overall([], [], [row], counts=Counts())[0] != "pass"


@pytest.mark.parametrize(
    ("settings", "verdicts"),
    [
        ({"optimizer": "sgd"}, []),
        ({"optimizer": "adamw"}, ["fail"]),
        ({"max_grad_norm": 0.1}, []),
        ({"lora_rank": 4, "lora_dropout": 0.1}, []),
    ],
)
def test_what_changes_the_training_is_not_held_against_what_does_not(
    build: Build, settings: Any, verdicts: list[str]
) -> None:
    """A loss off by 1 % of its way: too much in float32."""
    one, two = trained(build, 1), trained(build, 2, **settings)
    rows = checks((one, measured(build, one, CURVE)), (two, measured(build, two, (11.9, *CURVE[1:]))))
    assert [row.verdict for row in rows] == verdicts
