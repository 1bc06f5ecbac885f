"""From records to metrics, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pybench.core.measurements import Measurements, metric_samples
from pybench.core.summary import summarize
from pybench.model.suite import Plan, Skip
from pybench.model.wire import Failure, Work
from pybench.model.workloads.registry import METRICS, METRICS_OF
from tests.build import Build
from tests.builders import with_attempts


def _plan(*points: Any, skips: tuple[Skip, ...] = (), left_out: tuple[Skip, ...] = ()) -> Plan:
    return Plan(points=points, skips=skips, left_out=left_out)


def test_generation_metrics_by_hand(build: Build) -> None:
    """40 decoded and 120 prompt tokens of 4 sequences in 2 s, ten rounds 0.2 s apart."""
    point = build.generate()
    samples = metric_samples(point, build.measured(point, [[2.0, 2.0]]))
    assert samples == {
        "output_tokens_per_s": ((20.0, 20.0),),
        "total_tokens_per_s": ((80.0, 80.0),),
        "requests_per_s": ((2.0, 2.0),),
        "model_flops": ((2_221_211_123_712.0,) * 2,),  # worked out in test_utilisation_by_hand
        "step_s": ((2.0, 2.0),),
        **{name: ((0.2, 0.2),) for name in METRICS if name.startswith(("ttft_", "tpot_", "itl_"))},
        **{name: ((2.0, 2.0),) for name in METRICS if name.startswith("e2e_")},
        "peak_memory_bytes": ((5.0,),),
        "startup_s": ((3.0,),),
    }


def test_training_metrics_by_hand(build: Build) -> None:
    """4 samples of 100 tokens in 2 s on two ranks; 60 J in two steps."""
    point = build.train(2)
    steps = build.steps([2.0, 2.0], Work(samples=4))
    record = build.record(point, (build.rank(steps), build.rank(steps, 1)), energy=build.energy([40.0, 20.0], 4.0))
    samples = metric_samples(point, [record])
    assert samples["tokens_per_s"] == ((200.0, 200.0),)
    assert samples["samples_per_s"] == ((2.0, 2.0),)
    assert samples["energy_j"] == ((30.0,),)
    assert samples["energy_j_per_token"] == ((60.0 / 800,),)
    assert samples["mean_power_w"] == ((15.0,),)
    assert "output_tokens_per_s" not in samples


def test_mean_power_is_without_pauses(build: Build) -> None:
    """Two GPUs of 500 W in 4 s of a window of 5 s, as their joules are."""
    point = build.train(2)
    dithered = [replace(gpu, mean_power_w=500.0) for gpu in build.energy([2000.0, 2000.0], 5.0).gpus]
    energy = replace(build.energy([], 5.0), gpus=tuple(dithered))
    steps = build.steps([2.0, 2.0], Work(samples=4))
    record = build.record(point, (build.rank(steps), build.rank(steps, 1)), energy=energy)
    assert metric_samples(point, [record])["mean_power_w"] == ((1000.0,),)


def test_a_step_lasts_from_the_earliest_start_to_the_latest_end(build: Build) -> None:
    """Rank 1 begins 0.5 s after rank 0: 2.5 s together. Memory is the larger of the two."""
    point = build.generate(2)
    work = Work(prompt_tokens=120, output_tokens=40, samples=4)
    early, late = build.steps([2.0], work), build.steps([2.0], work, start_s=0.5)
    record = build.record(point, (build.rank(early), build.rank(late, 1, memory=9.0)))
    samples = metric_samples(point, [record])
    assert samples["step_s"] == ((2.5,),)
    assert samples["output_tokens_per_s"] == ((16.0,),)
    assert samples["peak_memory_bytes"] == ((9.0,),)


def test_one_decode_round_has_no_time_per_further_token(build: Build) -> None:
    """And without any round there is no time to the first."""
    point = build.generate()
    work = Work(prompt_tokens=120, output_tokens=40, samples=4)
    one = build.record(point, (build.rank(build.steps([2.0], work, rounds=1)),))
    none = build.record(point, (build.rank(build.steps([2.0], work)),), startup_s=None)
    assert metric_samples(point, [one])["ttft_s"] == ((2.0,),)
    assert "tpot_s" not in metric_samples(point, [one])
    assert "ttft_s" not in metric_samples(point, [none])
    assert "startup_s" not in metric_samples(point, [none])


def test_memory_that_no_rank_could_tell_is_absent(build: Build) -> None:
    """Unknown is not zero."""
    point = build.generate()
    rank = replace(build.rank(build.steps([2.0], Work(output_tokens=40))), metrics=())
    samples = metric_samples(point, [build.record(point, (rank,))])
    assert "peak_memory_bytes" not in samples
    assert samples["step_s"] == ((2.0,),)


def test_energy_of_generation_by_hand(build: Build) -> None:
    """160 J in two steps of 40 tokens: 80 J a step, 2 J a token; each GPU's own joules a step."""
    point = build.generate(2)
    (record,) = build.measured(point, [[2.0, 2.0]], energy=build.energy([100.0, 60.0], 4.0, flags=("alias_risk",)))
    (result,) = summarize(Measurements.of(_plan(with_attempts(point, 1)), [record]))
    assert result.metrics["energy_j"].value == 80.0
    assert result.metrics["energy_j_per_output_token"].value == 2.0
    assert result.metrics["energy_j_per_output_token"].unit == "J/token"
    assert result.metrics["mean_power_w"].value == 40.0
    assert result.energy_by_gpu_j == {"GPU-0": 50.0, "GPU-1": 30.0}
    assert result.flags == ("single_attempt", "alias_risk")


def test_unknown_energy_of_one_gpu_leaves_the_sum_out(build: Build) -> None:
    """A sum without one of its parts would be too small; the known GPU is still shown."""
    point = build.generate(2)
    (record,) = build.measured(point, [[2.0]], energy=build.energy([100.0, None], 2.0))
    (result,) = summarize(Measurements.of(_plan(point), [record]))
    assert not {name for name in result.metrics if "energy" in name or "power" in name}
    assert result.energy_by_gpu_j == {"GPU-0": 100.0}


def test_every_unit_is_the_metrics_own(build: Build) -> None:
    """Units are stated once."""
    point = build.generate()
    (result,) = summarize(
        Measurements.of(_plan(point), build.measured(point, [[1.0], [1.0]], energy=build.energy([5.0], 1.0)))
    )
    assert {name: e.unit for name, e in result.metrics.items()} == {name: METRICS[name].unit for name in result.metrics}
    engines_only = {"kv_cache_tokens", "num_running", "num_runnable", "num_preemptions", "prefix_hit_fraction"}
    several_gpus_only = {"energy_imbalance_fraction", "nvlink_bytes", "nvlink_bytes_per_s_per_gpu"}
    several_gpus_only |= {"exposed_communication_fraction", "straggler_gap_fraction"}
    known_gpus_only = {"mfu_fraction", "mbu_fraction"}
    phases_only = {"prefill_energy_j_per_prompt_token", "decode_energy_j_per_output_token"}
    steady_only = {"steady_output_tokens_per_s", "steady_energy_j_per_output_token"}
    servers_only = {"num_failed_requests", "num_cancelled_requests", "late_arrival_fraction", "client_cpu_fraction"}
    servers_only |= {"server_ttft_s", "server_itl_s", "energy_j_per_request", "goodput_requests_per_s"} | steady_only
    absent = engines_only | several_gpus_only | known_gpus_only | phases_only | servers_only
    assert set(result.metrics) == set(METRICS_OF["generate"]) - absent


def test_one_good_attempt_makes_a_point_ok(build: Build) -> None:
    """The failed one is counted, and its steps are not."""
    point = build.generate()
    records = [build.failed(point, 2), *build.measured(point, [[2.0]])]
    (result,) = summarize(Measurements.of(_plan(point), records))
    assert (result.status, result.reason, result.attempts, result.failed_attempts) == ("ok", None, 2, 1)
    assert result.metrics["step_s"].value == 2.0
    assert result.metrics["step_s"].low is None


def test_a_point_that_only_failed_says_why(build: Build) -> None:
    """The first failure's cause and message."""
    point = build.generate()
    (result,) = summarize(Measurements.of(_plan(point), [build.failed(point)]))
    assert (result.status, result.reason, result.metrics) == ("failed", "out_of_memory: 81 GiB asked", {})


def test_a_point_without_records_is_missing(build: Build) -> None:
    """Another point's records are not its own."""
    point, other = build.generate(1), build.generate(2)
    results = summarize(Measurements.of(_plan(point, other), build.measured(other, [[1.0]])))
    assert [(r.status, r.reason) for r in results] == [("missing", "not measured"), ("ok", None)]


def test_skipped_and_left_out_points_stay_visible(build: Build) -> None:
    """Each with its reason."""
    skip = Skip(id="a", benchmark="decode", axes={}, num_gpus=8, reason="needs 8 GPUs, found 1")
    left = Skip(id="b", benchmark="decode", axes={}, num_gpus=4, reason="left out by --max-gpus 1")
    results = summarize(Measurements.of(_plan(build.generate(), skips=(skip,), left_out=(left,)), []))
    assert [(r.status, r.reason) for r in results[1:]] == [("skipped", skip.reason), ("skipped", left.reason)]


def test_cautions_are_flags(build: Build) -> None:
    """An attempt that never got steady, and one far off the other four, which still counts."""
    point = build.generate()
    records = build.measured(point, [[2.0], [2.02], [1.98], [2.0]])
    work = Work(prompt_tokens=120, output_tokens=40, samples=4)
    records.append(build.record(point, (build.rank(build.steps([4.0], work), steady=False),), 5))
    (result,) = summarize(Measurements.of(_plan(point), records))
    assert result.flags == ("not_steady", "outlying_attempt")
    assert result.metrics["step_s"].value == pytest.approx((2.0 * 2.02 * 1.98 * 2.0 * 4.0) ** 0.2)


@pytest.mark.parametrize(
    ("seconds", "flags"),
    [([2.0, 2.05, 1.95], ()), ([0.5, 0.51], ("not_steady",)), ([2.0, 2.05, 1.85], ("not_steady",))],
)
def test_measured_steps_can_be_steady_where_the_warm_up_was_short(
    build: Build, seconds: list[float], flags: tuple[str, ...]
) -> None:
    """A turn has one step of warm-up, which shows nothing."""
    point, work = with_attempts(build.generate(), 2), Work(prompt_tokens=120, output_tokens=40, samples=4)
    records = [build.record(point, (build.rank(build.steps(seconds, work), steady=False),), n) for n in (1, 2)]
    (result,) = summarize(Measurements.of(_plan(point), records))
    assert result.flags == flags


@pytest.mark.parametrize(
    ("steady", "flags"), [(True, ("scattered_steps",)), (False, ("not_steady", "scattered_steps"))]
)
def test_one_attempt_of_scattered_steps_is_a_caution(build: Build, *, steady: bool, flags: tuple[str, ...]) -> None:
    """Whatever its warm-up was: steps that get longer leave a median that no step lies at."""
    point, work = with_attempts(build.generate(), 2), Work(prompt_tokens=120, output_tokens=40, samples=4)
    alike = build.record(point, (build.rank(build.steps([2.0, 2.0, 2.0], work)),), 1)
    longer = build.record(point, (build.rank(build.steps([1.8, 2.0, 2.2], work), steady=steady),), 2)
    (result,) = summarize(Measurements.of(_plan(point), [alike, longer]))
    assert result.flags == flags


def test_fewer_steps_than_the_suite_wants_are_a_caution_under_a_limit(build: Build) -> None:
    """Without one an attempt of fewer steps would have failed."""
    point, work = build.generate(), Work(prompt_tokens=120, output_tokens=40, samples=4)
    wanted = [2.0] * point.effort.steps
    records = [
        build.record(point, (build.rank(build.steps(seconds, work)),), number)
        for number, seconds in enumerate((wanted, wanted[:-1]), 1)
    ]
    for own, flags in ((records[:1], ()), (records, ("fewer_steps",))):
        (result,) = summarize(Measurements.of(_plan(point), own), time_limit_s=60.0)
        assert tuple(flag for flag in result.flags if flag == "fewer_steps") == flags


def test_points_of_one_process_are_named_by_each_other(build: Build) -> None:
    """One log is one process; a process that only a failed attempt shared does not count for that point."""
    one, two, three = build.generate(1), build.generate(2), build.generate(4)
    records = [
        replace(record, log=log)
        for point, log in ((one, "a"), (two, "a"), (three, "b"))
        for record in build.measured(point, [[2.0]])
    ]
    lost = replace(records[2], log="a", failure=Failure(cause="signal", message=""))
    found = summarize(Measurements.of(_plan(one, two, three), [*records, lost]))
    assert [point.shared_with for point in found] == [(two.id, three.id), (one.id, three.id), ()]
