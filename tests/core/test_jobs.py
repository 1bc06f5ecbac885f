"""Hours and joules of a whole job, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pybench.core.assemble import job_results
from pybench.core.measurements import Measurements
from pybench.core.train_metrics import job_steps
from pybench.model.record import Record
from pybench.model.suite import Plan, Point, TrainingJob
from pybench.model.wire import Work
from tests.build import Build
from tests.builders import with_settings

GUIDE = TrainingJob(samples=2686, epochs=3)


def _point(build: Build, degree: int, **settings: object) -> Point:
    return replace(with_settings(build.train(degree), **settings), job=GUIDE)


def _records(build: Build, point: Point, seconds: list[list[float]], joules: float | None = None) -> list[Record]:
    """Two samples a step on each GPU; every GPU takes ``joules`` in each attempt."""
    work = Work(samples=2 * point.num_gpus)
    found = []
    for number, lengths in enumerate(seconds, 1):
        ranks = tuple(build.rank(build.steps(lengths, work), rank) for rank in range(point.num_gpus))
        energy = None if joules is None else build.energy([joules] * point.num_gpus, sum(lengths))
        found.append(build.record(point, ranks, number, energy=energy))
    return found


def test_the_last_step_of_an_epoch_counts_whole() -> None:
    """2,686 samples by 8 are 335.75 steps."""
    assert job_steps(GUIDE, 8) == 3 * 336
    assert job_steps(TrainingJob(samples=16), 8) == 2
    assert job_steps(TrainingJob(samples=3), 8) == 1


def test_a_job_on_more_gpus(build: Build) -> None:
    """2 samples a second become 6.4: 4,029 steps of 1 s, 1,008 steps of 1.25 s; 400 J and 4 x 250 J a step."""
    one, four = _point(build, 1), _point(build, 4)
    records = [
        *_records(build, one, [[1.0, 1.0], [1.0, 1.0]], 800.0),
        *_records(build, four, [[1.25, 1.25], [1.25, 1.25]], 500.0),
    ]
    measured = Measurements.of(Plan(points=(four, one), skips=()), records)
    first, second = job_results(measured)
    assert (first.point_id, first.baseline_id, first.steps, first.num_gpus) == (one.id, None, 4029, 1)
    assert first.time_h.value == pytest.approx(4029 / 3600)
    assert first.energy_j is not None
    assert first.energy_j.value == pytest.approx(4029 * 400)
    assert (first.time_saved_fraction, first.energy_saved_fraction) == (None, None)
    assert (second.baseline_id, second.steps) == (one.id, 1008)
    assert second.time_h.value == pytest.approx(1008 * 1.25 / 3600)
    assert second.energy_j is not None
    assert second.energy_j.value == pytest.approx(1008 * 1000)
    assert second.time_saved_fraction is not None
    assert second.time_saved_fraction.value == pytest.approx(1 - 1260 / 4029)
    assert second.energy_saved_fraction is not None
    assert second.energy_saved_fraction.value == pytest.approx(1 - 1008_000 / 1611_600)


def test_ends_of_what_is_saved_are_in_order(build: Build) -> None:
    """More time is less saved: the ends of the ratio change places."""
    one, two = _point(build, 1), _point(build, 2)
    records = [*_records(build, one, [[1.0], [1.02], [1.01]]), *_records(build, two, [[1.0], [1.03], [1.01]])]
    _, row = job_results(Measurements.of(Plan(points=(one, two), skips=()), records))
    saved = row.time_saved_fraction
    assert saved is not None
    assert saved.low is not None
    assert saved.high is not None
    assert saved.low < saved.value < saved.high
    assert saved.value == pytest.approx(0.5, abs=0.02)
    assert row.energy_j is None
    assert row.energy_saved_fraction is None


def test_points_that_differ_in_more_than_gpus_are_not_held_against_each_other(build: Build) -> None:
    """Each batch size has its own baseline."""
    points = [
        replace(_point(build, degree), id=f"fit{degree}{batch}", axes={"data_parallel": degree, "batch": batch})
        for batch in (1, 2)
        for degree in (1, 2)
    ]
    records = [record for point in points for record in _records(build, point, [[1.0], [1.0]])]
    rows = job_results(Measurements.of(Plan(points=tuple(points), skips=()), records))
    assert [(row.point_id, row.baseline_id) for row in rows] == [
        ("fit11", None),
        ("fit21", "fit11"),
        ("fit12", None),
        ("fit22", "fit12"),
    ]


def test_a_job_on_more_nodes_is_held_against_the_fewest_gpus(build: Build) -> None:
    """Nodes multiply GPUs as other degrees do."""
    points = [
        replace(_point(build, 2 * nodes), id=f"fit{nodes}", axes={"nodes": nodes, "data_parallel": 2 * nodes})
        for nodes in (1, 2)
    ]
    records = [record for point in points for record in _records(build, point, [[1.0], [1.0]])]
    first, second = job_results(Measurements.of(Plan(points=tuple(points), skips=()), records))
    assert (first.baseline_id, second.baseline_id) == (None, "fit1")
    assert second.time_saved_fraction is not None
    assert second.time_saved_fraction.value == pytest.approx(0.5, abs=0.01)


def test_no_job_no_row(build: Build) -> None:
    """Nor a point that was not measured."""
    plain = build.train(1)
    job = _point(build, 2)
    measured = Measurements.of(Plan(points=(plain, job), skips=()), _records(build, plain, [[1.0], [1.0]]))
    assert not list(job_results(measured))
    assert "job_h" not in measured.samples(plain)
