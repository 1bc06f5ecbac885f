"""Joules of prefill and decode out of one trace."""

from __future__ import annotations

import pytest

from pybench.model.record import PhaseEnergy
from pybench.model.suite import Effort, Point
from pybench.model.wire import RequestTimes, Span, Step, Work
from pybench.model.workloads.checkpoint import Checkpoint
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.registry import AnySettings
from pybench.power.measured_window import window_energy
from pybench.power.sensor import shipped_model
from pybench.power.trace import CounterColumns, GpuTrace, OffsetColumns, PowerTrace, SeriesColumns

_MS = 1_000_000
# CLOCK_REALTIME is CLOCK_MONOTONIC here.
_OFFSETS = OffsetColumns(t_ns=(-3000 * _MS, 9000 * _MS), realtime_offset_ns=(0, 0), set_by_ns=(0, 0))


def _trace(power_w: float, num_gpus: int = 1) -> PowerTrace:
    """GPUs at constant power from -3 to 9 s: a counter that publishes every 100 ms, a sample every 20 ms."""
    reads = range(-3000, 9000, 50)
    counted = [round(power_w * (at // 100 * 100 + 3000)) for at in reads]
    stamps = [at * _MS for at in range(-3000, 9000, 20)]
    gpus = tuple(
        GpuTrace(
            uuid=f"GPU-{index}",
            index=index,
            name="g",
            sensor=shipped_model("NVIDIA H200", "580.00"),
            capabilities=("counter", "series"),
            counter=CounterColumns(
                before_ns=[at * _MS for at in reads], after_ns=[at * _MS + 1000 for at in reads], energy_mj=counted
            ),
            series=SeriesColumns(realtime_ns=stamps, power_mw=[round(power_w * 1000)] * len(stamps)),
        )
        for index in range(num_gpus)
    )
    return PowerTrace(start_ns=-3000 * _MS, end_ns=9000 * _MS, gpus=gpus, offsets=_OFFSETS)


def _step(start: int, first: int, end: int, *, requests: tuple[int, ...] = ()) -> Step:
    times = tuple(
        RequestTimes(
            arrival_ns=start * _MS, first_token_ns=at * _MS, last_token_ns=end * _MS, prompt_tokens=1, output_tokens=2
        )
        for at in requests
    )
    return Step(
        index=0,
        phase="measure",
        start_ns=start * _MS,
        end_ns=end * _MS,
        work=Work(),
        token_end_ns=(first * _MS, end * _MS),
        requests=times,
    )


BATCH = Generate(backend="torch", model="tiny", batch_size=1, prompt_tokens=1, output_tokens=2)


def _phases(trace: PowerTrace, steps: list[list[Step]], settings: AnySettings = BATCH) -> tuple[PhaseEnergy, ...]:
    """Of measured steps, each of which has a report of every rank."""
    point = Point(id="p", benchmark="p", axes={}, settings=settings, effort=Effort(), architecture=None)
    return window_energy(point, list(zip(*steps, strict=True)), trace).phases


def test_phases_of_all_steps_add_up() -> None:
    """Two GPUs of 400 W: 0.2 + 0.3 s of prefill, 0.8 + 1.2 s of decode, within the bounds that come with them."""
    steps = [[_step(0, 200, 1000)], [_step(1500, 1800, 3000)]]
    prefill, decode = _phases(_trace(400.0, num_gpus=2), steps)
    assert (prefill.name, decode.name) == ("prefill", "decode")
    assert (prefill.duration_s, decode.duration_s) == pytest.approx((0.5, 2.0))
    for phase, joules in ((prefill, 400.0), (decode, 1600.0)):
        assert phase.energy_low_j is not None
        assert phase.energy_high_j is not None
        assert phase.energy_low_j <= joules <= phase.energy_high_j
        assert phase.energy_j == pytest.approx(joules, rel=0.03)
        assert "short_window" not in phase.flags


def test_prefill_lasts_until_the_last_request_of_the_last_rank_has_a_token() -> None:
    """Requests that decode while others wait do so within prefill's window."""
    ranks = [_step(0, 50, 1000, requests=(50, 300)), _step(10, 50, 1000, requests=(400,))]
    prefill, _ = _phases(_trace(400.0), [ranks])
    assert prefill.duration_s == pytest.approx(0.4)


@pytest.mark.parametrize(("waited_until", "num_phases"), [(999, 2), (1000, 2), (1001, 0)])
def test_sequences_that_begin_after_others_have_ended_leave_no_phases(waited_until: int, num_phases: int) -> None:
    """All requests of the first rank end at 1 s: what runs until the last first token is decoding, too."""
    ranks = [_step(0, 50, 1000, requests=(50, 300)), _step(0, 50, 2000, requests=(waited_until,))]
    assert len(_phases(_trace(400.0), [ranks])) == num_phases


def test_a_window_below_the_sensors_period_is_flagged() -> None:
    """10 ms of prefill are mostly what came before and after."""
    prefill, decode = _phases(_trace(400.0), [[_step(0, 10, 1000)]])
    assert "short_window" in prefill.flags
    assert "short_window" not in decode.flags


def test_without_a_decode_there_are_no_phases() -> None:
    """One token, no token."""
    none = Step(index=0, phase="measure", start_ns=0, end_ns=_MS, work=Work())
    assert _phases(_trace(400.0), [[_step(0, 1000, 1000)]]) == ()
    assert _phases(_trace(400.0), [[none]]) == ()


def test_a_trace_that_ends_early_knows_nothing() -> None:
    """Unknown is None."""
    late = _step(20_000, 20_200, 21_000)
    assert [phase.energy_j for phase in _phases(_trace(400.0), [[late]])] == [None, None]


def test_phases_of_a_workload_have_joules_of_each_gpu() -> None:
    """Two GPUs of 400 W: 1.5 s of training in two parts, 600 J each; a rank that ends 100 ms late ends the phase."""

    def spans(*parts: tuple[str, int, int]) -> Step:
        found = tuple(Span(name=name, start_ns=start * _MS, end_ns=end * _MS) for name, start, end in parts)
        return Step(index=0, phase="measure", start_ns=0, end_ns=4000 * _MS, work=Work(), spans=found)

    first = spans(("generate", 0, 1000), ("train", 1000, 1900), ("train", 3000, 3500))
    late = spans(("generate", 0, 900), ("train", 1000, 2000), ("train", 3000, 3400))
    generate, train = _phases(_trace(400.0, num_gpus=2), [[first, late]], Checkpoint(backend="torch", model="m"))
    assert (generate.name, train.name) == ("generate", "train")
    assert (generate.duration_s, train.duration_s) == pytest.approx((1.0, 1.5))
    assert train.energy_j == pytest.approx(1200.0, rel=0.03)
    assert [gpu.energy_j for gpu in train.gpus] == pytest.approx([600.0, 600.0], rel=0.03)
    assert train.energy_low_j is not None
    assert train.energy_high_j is not None
    assert train.energy_low_j <= 1200.0 <= train.energy_high_j
