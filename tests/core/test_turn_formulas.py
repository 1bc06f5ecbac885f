"""Where the time and the joules of turns go: expected numbers by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pybench.core import turn_metrics as turn
from pybench.core.joint_step import JointStep
from pybench.core.summary import phase_results
from pybench.model.record import Energy, GpuEnergy, PhaseEnergy, RankReport
from pybench.model.suite import Effort, Point
from pybench.model.wire import Span, Step, Work
from pybench.model.workloads.turn import Turn
from tests.builders import HEADER, RECORD

MS = 1_000_000


def point(**given: Any) -> Point:
    base: dict[str, Any] = {"backend": "torch", "model": "m", "topology": "decoupled", "lora_rank": 4}
    sizes: dict[str, Any] = {"batch_size": 2, "prompt_tokens": 30, "output_tokens": 20, "tensor_parallel": 4}
    settings = Turn(**{**base, **sizes, **given})
    return Point(id="p", benchmark="b", axes={}, settings=settings, effort=Effort(), architecture=None)


def span(name: str, start_ms: float, end_ms: float, device_bytes: int = 0, host_bytes: int = 0) -> Span:
    return Span(
        name=name,
        start_ns=int(start_ms * MS),
        end_ns=int(end_ms * MS),
        device_bytes=device_bytes,
        host_bytes=host_bytes,
    )


# 1 s: 400 ms generating, 300 ms training, 300 ms switching; 200 ms of checks belong to no turn.
SPANS = (
    span("generate", 0, 400, 90, 1),
    span("engine_sleep", 400, 450, 20, 5),
    span("trainer_onload", 450, 500, 60, 5),
    span("check", 500, 600, 60, 5),
    span("train", 600, 900, 80, 5),
    span("trainer_offload", 900, 950, 20, 7),
    span("handover", 950, 1000, 20, 7),
    span("wake_weights", 1000, 1030, 50, 7),
    span("handover", 1030, 1060, 50, 7),
    span("wake_cache", 1060, 1070, 90, 1),
    span("first_token", 1070, 1100, 90, 1),
    span("check", 1100, 1200, 90, 1),
)
WORK = Work(prompt_tokens=60, output_tokens=40, samples=2)


def step(spans: tuple[Span, ...] = SPANS, **values: float) -> Step:
    return Step(index=0, phase="measure", start_ns=0, end_ns=1200 * MS, work=WORK, spans=spans, values=values)


def test_a_turn_is_generating_training_and_the_switch() -> None:
    """100 tokens in a second on 4 GPUs; three of them wait 400 ms for the trainer: 30 % of the GPUs' time."""
    found = turn.of_step(point(), JointStep((step(handover_bytes=8e6),)))
    expected = {
        "turn_s": 1.0,
        "tokens_per_s_per_gpu": 25.0,
        "switch_s": 0.3,
        "switch_fraction": 0.3,
        "generate_s": 0.4,
        "sleep_s": 0.05,
        "train_s": 0.3,
        "handover_s": 0.08,
        "wake_s": 0.04,
        "handover_bytes_per_s": 1e8,
        "resident_asleep_bytes": 20,
        "host_pinned_bytes": 7,
        "idle_gpu_s": 1.2,
        "idle_gpu_fraction": 0.3,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_half_a_handover_has_no_rate() -> None:
    """While the engine generates it reads the file: the other half lies in that phase."""
    found = turn.of_step(point(async_weight_syncing=True), JointStep((step(handover_bytes=8e6),)))
    assert found["handover_bytes_per_s"] is None
    assert found["handover_s"] is not None


def test_phases_last_from_the_first_ranks_start_to_the_last_ones_end() -> None:
    """A rank that is 10 ms late ends the phase; the fullest rank's memory counts, and all ranks' host memory."""
    first, late = (span("train", 0, 100, 3, 4),), (span("train", 5, 110, 9, 2),)
    found = turn.of_step(point(), JointStep((step(first), step(late))))
    assert found["turn_s"] == pytest.approx(0.11)
    assert found["host_pinned_bytes"] == 6


def test_several_turns_of_a_step_give_their_mean() -> None:
    """The same spans twice are two turns of the same length."""
    again = tuple(replace(one, start_ns=one.start_ns + 1200 * MS, end_ns=one.end_ns + 1200 * MS) for one in SPANS)
    work = Work(prompt_tokens=120, output_tokens=80, samples=4)
    found = turn.of_step(point(turns=2), JointStep((replace(step((*SPANS, *again)), work=work),)))
    assert (found["turn_s"], found["tokens_per_s_per_gpu"]) == pytest.approx((1.0, 25.0))


def test_what_stays_on_the_gpu_grows_by_a_slope() -> None:
    """10, 12, 14 bytes: 2 a turn. Two turns say nothing about a slope."""
    steps = [JointStep((step((span("engine_sleep", 0, 1, amount),)),)) for amount in (10, 12, 14)]
    assert turn.of_attempt(point(), steps, {})["resident_growth_bytes_per_turn"] == pytest.approx(2.0)
    assert turn.of_attempt(point(), steps[:2], {}) == {}


def test_what_stays_the_same_to_the_byte_grows_by_nothing() -> None:
    """By floating point it would be some 1e-7 bytes, or -0.0."""
    asleep = JointStep((step((span("engine_sleep", 0, 1, 7_354_187_776),)),))
    found = turn.of_attempt(point(), [asleep] * 6, {})["resident_growth_bytes_per_turn"]
    assert str(found) == "0.0"


def _phase(name: str, *joules: float) -> PhaseEnergy:
    gpus = tuple(GpuEnergy(uuid=str(n), index=n, energy_j=each, method="series") for n, each in enumerate(joules))
    total = sum(joules)
    return PhaseEnergy(name=name, duration_s=1.0, energy_j=total, energy_low_j=total, energy_high_j=total, gpus=gpus)


ENERGY = Energy(
    start_ns=0,
    end_ns=1,
    gpus=(),
    phases=(
        _phase("generate", 100, 100),
        _phase("engine_sleep", 10, 10),
        _phase("train", 150, 30),
        _phase("check", 999, 999),
    ),
)


def test_joules_of_a_turn_leave_the_checks_out() -> None:
    """400 J in two turns, 20 of them for switching; the second GPU used 30 J while the first one trained."""
    found = turn.of_energy(point(tensor_parallel=2), [JointStep((step(),))] * 2, ENERGY)
    assert found == pytest.approx(
        {"energy_j_per_turn": 200.0, "switch_energy_fraction": 0.05, "idle_energy_j_per_turn": 15.0}
    )


def test_unknown_joules_of_a_phase_are_not_taken_for_none() -> None:
    """A sensor that gave nothing for one phase leaves the turn's energy unknown."""
    phases = (*ENERGY.phases[:1], replace(ENERGY.phases[1], energy_j=None), *ENERGY.phases[2:])
    found = turn.of_energy(point(), [JointStep((step(),))], replace(ENERGY, phases=phases))
    assert found["energy_j_per_turn"] is None


def test_phases_are_shown_without_a_sensor() -> None:
    """Time, and the most bytes at the end of any of a phase's parts; joules are unknown."""
    record = replace(RECORD, ranks=(RankReport(header=HEADER, steps=(step(),)),))
    [found] = [phase for phase in phase_results([record]) if phase.name == "handover"]
    assert found.duration_s == pytest.approx(0.08)
    assert (found.device_bytes, found.host_bytes, found.energy_j) == (50, 7, None)


def test_joules_of_a_phase_are_those_of_one_step() -> None:
    """110 J of two steps' generating are 55 each."""
    energy = replace(ENERGY, phases=(_phase("generate", 60, 50),))
    record = replace(RECORD, ranks=(RankReport(header=HEADER, steps=(step(), step())),), energy=energy)
    [found] = [phase for phase in phase_results([record]) if phase.name == "generate"]
    assert found.energy_j == pytest.approx(55.0)
