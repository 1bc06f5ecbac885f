"""One value for every judge."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pybench.core import measurements
from pybench.core.measurements import Measurements, metric_samples
from pybench.core.metrics import metric_values
from pybench.model.suite import Plan, Skip
from pybench.model.wire import Work
from tests.build import Build


def test_metrics_of_a_record_are_evaluated_once(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three attempts are three evaluations, however many judges read the point; unread points cost nothing."""
    read, unread = build.generate(1), build.generate(2)
    records = [*build.measured(read, [[1.0]] * 3), *build.measured(unread, [[1.0]])]
    calls: list[str] = []
    evaluate = metric_values

    def counted(point: Any, record: Any) -> dict[str, tuple[float, ...]]:
        calls.append(point.id)
        return evaluate(point, record)

    monkeypatch.setattr(measurements, "metric_values", counted)
    own = Measurements.of(Plan(points=(read, unread), skips=()), records)
    assert [own.samples(read)["step_s"] for _ in range(5)] == [((1.0,),) * 3] * 5
    assert calls == [read.id] * 3


def test_records_of_other_points_or_settings_are_left_out(build: Build) -> None:
    """A journal may hold points that the plan lacks, or an older form of one."""
    point, stranger = build.generate(1), build.generate(2)
    kept, old = build.measured(point, [[1.0], [2.0]])
    records = [kept, dataclasses.replace(old, point_digest="old"), *build.measured(stranger, [[3.0]])]
    assert Measurements.of(Plan(points=(point,), skips=()), records).records == (kept,)


def test_failed_attempts_count_and_give_no_values(build: Build) -> None:
    """A point that cannot run has neither."""
    point = build.generate(1)
    skip = Skip(id="s", benchmark="decode", axes={}, num_gpus=8, reason="needs 8 GPUs")
    own = Measurements.of(Plan(points=(point,), skips=(skip,)), [build.failed(point), *build.measured(point, [[1.0]])])
    assert (len(own.attempts(point.id)), len(own.good(point.id))) == (2, 1)
    assert own.samples(point)["step_s"] == ((1.0,),)
    assert (own.attempts("s"), own.samples(skip)) == ((), {})
    assert [entry.id for entry in own.entries] == [point.id, "s"]


def test_bytes_over_nvlink_are_known_where_every_rank_knows_its_own(build: Build) -> None:
    """By hand: 300 and 500 bytes a step of 2 s on two GPUs. One rank's alone would look like half the traffic."""
    point, steps = build.train(2), build.steps([1.0, 3.0], Work(samples=4))
    ranks = [build.rank(steps, number, told={"nvlink_sent_bytes": sent}) for number, sent in enumerate((300.0, 500.0))]
    found = metric_samples(point, [build.record(point, tuple(ranks))])
    assert (found["nvlink_bytes"], found["nvlink_bytes_per_s_per_gpu"]) == (((800.0,),), ((200.0,),))
    partly = metric_samples(point, [build.record(point, (ranks[0], build.rank(steps, 1)))])
    assert not {"nvlink_bytes", "nvlink_bytes_per_s_per_gpu"} & set(partly)
