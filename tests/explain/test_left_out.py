"""What predictions leave out is named, and a step that waits for its loader is not predicted."""

from __future__ import annotations

import dataclasses
from typing import Any

from pybench.explain.values import Explanation
from pybench.model.suite import Point
from tests.build import Build
from tests.builders import with_settings


def _explained(runs: Any, points: list[Point], wait_s: float | None = None) -> Explanation:
    """Each step takes 0.1 s, of which it waits ``wait_s`` for a loader."""
    values = {} if wait_s is None else {"input_wait_s": wait_s}
    records = [
        dataclasses.replace(
            record,
            ranks=tuple(
                dataclasses.replace(rank, steps=tuple(dataclasses.replace(step, values=values) for step in rank.steps))
                for rank in record.ranks
            ),
        )
        for point in points
        for record in runs.measured(point, 0.1)
    ]
    found: Explanation = runs.explain_records(records, [(point, 0.1) for point in points], fingerprint="f")
    return found


def _loading(build: Build) -> list[Point]:
    return [with_settings(build.train(count), loader_workers=2) for count in (1, 2)]


def test_a_loader_that_keeps_up_is_left_out(runs: Any, build: Build) -> None:
    """Its steps are predicted as those of samples on the GPU, and a note has how long they wait."""
    found = _explained(runs, _loading(build), wait_s=0.001)
    plain = _explained(runs, [build.train(1), build.train(2)])
    assert [point.predicted_s for point in found.points] == [point.predicted_s for point in plain.points]
    assert found.points[0].predicted_s is not None
    assert "fit: the loader is left out: its steps wait for it at most 1.0 % of their length" in found.notes
    assert not any("loader" in note for note in plain.notes)


def test_a_step_that_waits_for_its_loader_is_not_predicted(runs: Any, build: Build) -> None:
    """A tenth of it is nothing that the model knows."""
    found = _explained(runs, _loading(build), wait_s=0.01)
    reason = "it waits for its loader 10.0 % of a step, and the model knows no loader"
    assert [found.baselines[0].reason, found.points[0].reason] == [reason, reason]
    assert not any("left out" in note for note in found.notes)


def test_grouped_products_have_no_rate_of_their_own(runs: Any, build: Build) -> None:
    """Those of a mixture's experts in training."""
    mixture = dataclasses.replace(build.train(1), architecture={**build.architecture, "num_local_experts": 4})
    note = "fit: products of experts are grouped in one kernel, whose rate the node's run does not measure"
    assert any(found.startswith(note) for found in _explained(runs, [mixture]).notes)
    assert not any(found.startswith(note) for found in _explained(runs, [build.train(1)]).notes)


def test_launches_of_an_engine_without_graphs_are_left_out(runs: Any, build: Build) -> None:
    """Each kernel is then launched by itself."""
    eager = build.generate(1, backend="vllm", enforce_eager=True)
    assert any("launches of single kernels are left out" in found for found in _explained(runs, [eager]).notes)
