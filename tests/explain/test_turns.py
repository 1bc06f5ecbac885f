"""A turn beside the same work alone, and beside what its phases take at least: expected numbers by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pybench.explain.comm_model.step_time import whole
from pybench.explain.node_figures import node_figures
from pybench.explain.predicted_phases import predicted_phases
from pybench.explain.text import render
from pybench.explain.values import ExplainedPhase, ExplainedTurn, Explanation
from pybench.model.effort import Effort
from pybench.model.record import Record
from pybench.model.suite import Point
from pybench.model.wire import Span, Work
from pybench.model.workloads.host_device_copy import HostDeviceCopy
from pybench.model.workloads.train import Train
from pybench.model.workloads.turn import Turn
from tests.build import Build

MS = 1_000_000
# Two bytes for each of 2 · 128256 · 4096 + 32 · (4096 · 2 · 40 · 128 + 3 · 4096 · 14336) weights.
WEIGHTS_BYTES = 16_059_990_016
WORK = Work(prompt_tokens=120, output_tokens=40, samples=4)
# Ends in ms from the start of the turn, which takes 10 s: 2 s generating, 4 s training.
ENDS = {
    "generate": 2000,
    "engine_sleep": 3250,
    "trainer_onload": 4250,
    "train": 8250,
    "trainer_offload": 9250,
    "wake_weights": 9450,
    "handover": 9850,
    "wake_cache": 9950,
    "first_token": 10000,
}


def turn_point(**given: Any) -> Point:
    sizes: dict[str, Any] = {
        "backend": "torch",
        "model": "m",
        "batch_size": 4,
        "prompt_tokens": 30,
        "output_tokens": 10,
    }
    settings = Turn(**{"topology": "shared", **sizes, **given})
    return Point(
        id="turns", benchmark="turns", axes={}, settings=settings, effort=Effort(), architecture=Build.architecture
    )


def training_point(**given: Any) -> Point:
    sizes: dict[str, Any] = {
        "global_batch_size": 4,
        "batch_size_per_gpu": 1,
        "grad_accum": "auto",
        "sequence_tokens": 40,
    }
    settings = Train(**{"backend": "torch", "model": "m", **sizes, **given})
    return Point(
        id="fit", benchmark="fit", axes={}, settings=settings, effort=Effort(), architecture=Build.architecture
    )


def turn_records(build: Build, point: Point) -> list[Record]:
    """Two attempts of two equal turns."""
    starts = [0, *list(ENDS.values())[:-1]]
    spans = tuple(
        Span(name=name, start_ns=start * MS, end_ns=end * MS)
        for start, (name, end) in zip(starts, ENDS.items(), strict=True)
    )
    values = {"handover_bytes": float(WEIGHTS_BYTES), "handover_floor_s": 0.1}
    [step] = build.steps([10.0], WORK)
    return [build.record(point, (build.rank((replace(step, spans=spans, values=values),) * 2),), n) for n in (1, 2)]


def explained(runs: Any, build: Build, turn: Point, alone: tuple[tuple[Point, float], ...] = ()) -> Explanation:
    """Copies to the host take a second for all weights, copies from it half of that."""
    runs.add(HostDeviceCopy(backend="torch", gpus=2, direction="d2h"), {"host_copy_bytes_per_s": WEIGHTS_BYTES})
    runs.add(HostDeviceCopy(backend="torch", gpus=2, direction="h2d"), {"host_copy_bytes_per_s": 2 * WEIGHTS_BYTES})
    records = [record for point, time_s in alone for record in runs.measured(point, time_s)]
    found: Explanation = runs.explain_records(
        [*turn_records(build, turn), *records], [(turn, 10.0), *alone], fingerprint="f"
    )
    return found


def phases_of(turn: ExplainedTurn) -> dict[str, ExplainedPhase]:
    return {phase.name: phase for phase in turn.phases}


def test_a_turn_is_held_against_its_own_work_and_the_nodes_rates(runs: Any, build: Build) -> None:
    """At level 1 the engine's weights and the trainer's three copies of them go to the host and come back."""
    alone = ((build.generate(1), 1.5), (training_point(), 3.5))
    [turn] = explained(runs, build, turn_point(), alone).turns
    found = phases_of(turn)
    assert (turn.turn_s, turn.switch_s) == pytest.approx((10.0, 4.0))
    assert (found["generate"].alone_s, found["train"].alone_s, turn.alone_s) == (1.5, 3.5, 5.0)
    assert found["train"].alone_id == "fit"
    floors = {name: phase.floor_s for name, phase in found.items()}
    copies = {"engine_sleep": 1.0, "trainer_onload": 1.5, "trainer_offload": 3.0, "handover": 0.1, "wake": 0.5}
    assert {name: floors[name] for name in copies} == pytest.approx(copies)
    figures = node_figures(runs.measured_node, "bfloat16").on(["rank 0"])
    assert floors["generate"] == whole(predicted_phases(figures, build.generate(1), 4)).total_s
    assert floors["train"] == whole(predicted_phases(figures, training_point(), 4)).total_s
    assert turn.switch_floor_s == pytest.approx(6.1 + (floors["first_token"] or 0))


def test_weights_that_are_discarded_are_not_copied(runs: Any, build: Build) -> None:
    """At level 2 the engine's sleep and wake have nothing to move."""
    [turn] = explained(runs, build, turn_point(sleep_level=2)).turns
    assert (phases_of(turn)["engine_sleep"].floor_s, phases_of(turn)["wake"].floor_s) == (0.0, 0.0)


def test_other_work_is_not_the_turns(runs: Any, build: Build) -> None:
    """Longer prompts and half of the passes; the notes name the workload that the run lacks."""
    alone = ((build.generate(1, prompt_tokens=31), 1.5), (training_point(global_batch_size=2), 3.5))
    explanation = explained(runs, build, turn_point(), alone)
    [turn] = explanation.turns
    assert turn.alone_s is None
    assert "turns: the run has no benchmark of workload 'train' with the turn's settings" in explanation.notes
    assert "turns: the run has no benchmark of workload 'generate' with the turn's settings" in explanation.notes


def test_adapters_and_policies_are_no_work_of_other_workloads(runs: Any, build: Build) -> None:
    """An engine with adapters decodes more slowly than one without, and a policy's loss is another."""
    adapters, policy = turn_point(lora_rank=8), turn_point(loss="grpo", group_size=2)
    [turn] = explained(runs, build, adapters, ((build.generate(1), 1.5), (training_point(lora_rank=8), 3.5))).turns
    assert (phases_of(turn)["generate"].alone_s, phases_of(turn)["train"].alone_s) == (None, 3.5)
    [turn] = explained(runs, build, policy, ((build.generate(1), 1.5), (training_point(), 3.5))).turns
    assert (phases_of(turn)["generate"].alone_s, phases_of(turn)["train"].alone_s) == (1.5, None)


@pytest.mark.parametrize(("weights", "share"), [("dtype", 1.0), ("nf4", 0.354)])
def test_frozen_weights_leave_as_they_are_stored(runs: Any, build: Build, weights: str, share: float) -> None:
    """Of four bits 0.516 bytes of 6.98e9 weights in layers; the three copies beside them are of what is handed over."""
    [turn] = explained(runs, build, turn_point(lora_rank=8, weights=weights)).turns
    floors = {name: phase.floor_s for name, phase in phases_of(turn).items()}
    copies = share + 3
    assert (floors["trainer_offload"], floors["trainer_onload"]) == pytest.approx((copies, copies / 2), rel=1e-3)


def test_a_phase_without_a_floor_names_why(runs: Any, build: Build) -> None:
    """What is kept in host memory is outside of the model; the handover of what is trained is measured all the same."""
    explanation = explained(runs, build, turn_point(activation_offload=True))
    assert phases_of(explanation.turns[0])["train"].floor_s is None
    [note] = [note for note in explanation.notes if "train has no floor" in note]
    assert note == "turns: train has no floor: the model knows no activation_offload"


def test_a_node_without_copies_has_no_floor_of_them(runs: Any, build: Build) -> None:
    """The workload that is missing is named once for each phase."""
    turn = turn_point()
    explanation = runs.explain_records(turn_records(build, turn), [(turn, 10.0)], fingerprint="f")
    assert (
        "turns: engine_sleep has no floor: the node's run has no host_device_copy d2h; measure node_check"
        in explanation.notes
    )


def test_the_report_begins_with_what_taking_turns_adds(runs: Any, build: Build) -> None:
    """One line for each turn, then its phases."""
    text = render(explained(runs, build, turn_point(), ((build.generate(1), 1.5), (training_point(), 3.5))), width=80)
    assert "\nTurns beside generating and training alone\npoint " in text
    [row] = [" ".join(line.split()) for line in text.splitlines() if line.startswith("turns  10 s")]
    assert row == "turns 10 s 5 s 5 s 4 s 6.104 s"
    assert "Phases of a turn" in text
    assert max(map(len, text.splitlines())) <= 80
