"""The shipped suite of turns: every profile plans on machines of its kind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pybench.core.comparisons import comparison_results
from pybench.core.measurements import Measurements
from pybench.core.memory import may_not_fit, memory_need
from pybench.files.suite.file import read_suite
from pybench.model.machine import Devices
from pybench.model.record import Record
from pybench.model.suite import Point
from pybench.model.wire import Span, Work
from pybench.model.workloads.train import Train
from pybench.model.workloads.turn import Turn
from pybench.run.events.contract import ordered_phases
from tests.api import planned
from tests.build import Build
from tests.suites.test_generate_suites import SUITES, plan_of
from tests.suites.test_train_memory import CARD_BYTES

PROFILES = ("rtx4090", "a100", "h100", "h200")
# Where training differs without another step's work.
_FREE = ("learning_rate", "grad_accum", "seed")


@pytest.mark.no_cover  # the tests below reach all that it does
def test_two_cores_take_turns_in_every_topology() -> None:
    """With torch's own engine, and nothing refused."""
    plan = plan_of("turn_taking", "cpu", 2)
    assert plan.skips == plan.left_out == ()
    settings = [point.settings for point in plan.points if isinstance(point.settings, Turn)]
    assert {one.topology for one in settings} == {"shared", "decoupled", "full"}
    assert {one.handover for one in settings} == {"direct", "file"}
    assert {one.sleep_level for one in settings} == {0, 1, 2}
    assert {one.backend for one in settings} == {"torch"}


@pytest.mark.no_cover  # the tests below reach all that it does
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("num_gpus", [1, 2, 4, 8])
def test_every_point_that_fits_is_planned(profile: str, num_gpus: int) -> None:
    """None is refused for its settings or its memory, whatever the number of GPUs."""
    suite = read_suite(SUITES / "turn_taking.toml", profile=None, machine_kind=profile)
    there = Devices("cuda", num_gpus, memory_bytes=CARD_BYTES[profile])
    plan = planned(suite, there)
    assert plan.points
    assert plan.skips == ()


@pytest.mark.parametrize("profile", ["a100", "h100", "h200"])
def test_arts_example_has_its_own_sizes(profile: str) -> None:
    """Qwen3-32B on eight GPUs of 80 GB or more, two sequences on each, in one pass, which fit."""
    [example] = [point for point in plan_of("turn_taking", profile, 8).points if point.benchmark == "art_full"]
    need = memory_need(example)
    assert isinstance(example.settings, Turn)
    assert (example.settings.model, example.settings.batch_size) == ("qwen3-32b", 16)
    assert example.settings.training.num_passes == 1
    assert need is not None
    assert not may_not_fit(need, CARD_BYTES[profile])


@pytest.mark.parametrize("profile", ["cpu", *PROFILES])
def test_the_work_of_a_turn_is_measured_alone(profile: str) -> None:
    """The suite measures the generation and the training of ``direct`` as workloads, in every profile."""
    settings = {point.benchmark: point.settings for point in plan_of("turn_taking", profile, 2).points}
    turn, generating, training = (settings[name] for name in ("direct", "generating", "training"))
    assert isinstance(turn, Turn)
    assert isinstance(training, Train)
    assert generating == turn.generation
    assert training.num_passes == turn.training.num_passes
    own, of_turn = training.to_json(), turn.training.to_json()
    assert {name for name in own if own[name] != of_turn[name]} <= set(_FREE)


ORDERS = {
    ("direct", "handover_s", "below", "file"): "handover",
    ("direct", "sleep_s", "below", "level1"): "engine_sleep",
    ("full", "tokens_per_s_per_gpu", "above", "decoupled"): "train",
}
"""The orders of the suite, each with a phase whose length decides it."""
# Of the phases that decide, in ms; every other phase takes 100 ms.
_LENGTHS_MS = {
    "direct": {"handover": 10, "engine_sleep": 20},
    "file": {"handover": 400},
    "level1": {"engine_sleep": 300},
    "full": {"train": 500},
    "decoupled": {"train": 2000},
}


def _records(point: Point, lengths_ms: dict[str, int]) -> list[Record]:
    """Two attempts of three turns."""
    assert isinstance(point.settings, Turn)
    names = ordered_phases(point.settings)
    spans, now = [], 0
    for name in names:
        end = now + lengths_ms.get(name, 100) * 1_000_000 // names.count(name)
        spans.append(Span(name=name, start_ns=now, end_ns=end))
        now = end
    build, sequences = Build(), point.settings.batch_size
    work = Work(prompt_tokens=512 * sequences, output_tokens=256 * sequences, samples=sequences)
    [step] = build.steps([now / 1e9], work)
    return [build.record(point, (build.rank((replace(step, spans=tuple(spans)),) * 3),), n) for n in (1, 2)]


def _verdicts(profile: str, lengths_ms: dict[str, dict[str, int]]) -> dict[tuple[str, str, str, str], str]:
    """Of each order of the suite, on two GPUs whose turns have such phases."""
    suite, plan = (
        read_suite(SUITES / "turn_taking.toml", profile=None, machine_kind=profile),
        plan_of("turn_taking", profile, 2),
    )
    turns = [point for point in plan.points if isinstance(point.settings, Turn)]
    records = [record for point in turns for record in _records(point, lengths_ms.get(point.benchmark, {}))]
    planned = {point.id for point in turns}
    rows = [row for row in comparison_results(suite, Measurements.of(plan, records)) if row.point_id in planned]
    return {(row.benchmark, row.metric, row.order, row.other_id.partition("[")[0]): row.verdict for row in rows}


@pytest.mark.no_cover  # three machines; the test below reaches all that they do
@pytest.mark.parametrize("profile", ["a100", "h100", "h200"])
def test_every_order_is_judged_between_gpus(profile: str) -> None:
    """Each passes where it holds, and fails where the two sides are exchanged."""
    assert _verdicts(profile, _LENGTHS_MS) == dict.fromkeys(ORDERS, "pass")
    for order, phase in ORDERS.items():
        one, _, _, other = order
        exchanged = {
            **_LENGTHS_MS,
            one: {**_LENGTHS_MS[one], phase: _LENGTHS_MS[other][phase]},
            other: {**_LENGTHS_MS[other], phase: _LENGTHS_MS[one][phase]},
        }
        assert _verdicts(profile, exchanged)[order] == "fail"


def test_a_cpu_judges_the_orders_that_hold_within_a_memory() -> None:
    """The torch backend has one process, and its ranks share the host's memory: only the order of sleeps is left."""
    within = [order for order in ORDERS if order[0] == "direct" and order[3] != "file"]
    assert _verdicts("cpu", _LENGTHS_MS) == dict.fromkeys(within, "pass")
