"""Joules of one attempt over two hosts: each by its own sensors and clock, or unknown altogether."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pybench.model.machine import HostClock
from pybench.model.record import Energy
from pybench.model.suite import Effort, Point
from pybench.model.wire import Span, Step, Work
from pybench.model.workloads.checkpoint import Checkpoint
from pybench.model.workloads.node import Burn
from pybench.power.measured_window import HostTrace, joined_conditions, joined_energy, window_energy
from pybench.power.sensor import shipped_model
from pybench.power.trace import GpuTrace, OffsetColumns, PowerTrace, SeriesColumns, SlowColumns

MS = 1_000_000
POINT = Point(id="p", benchmark="p", axes={}, settings=Burn(backend="torch"), effort=Effort(), architecture=None)
SAVING = replace(POINT, settings=Checkpoint(backend="torch", model="m"))
STEPS = [
    Step(index=0, phase="measure", start_ns=0, end_ns=513 * MS, work=Work()),
    Step(index=1, phase="measure", start_ns=513 * MS, end_ns=1000 * MS, work=Work()),
]
HOUR_NS = 3_600_000 * MS


def trace(uuid: str, powers_w: tuple[float, float], ahead_ns: int = 0) -> PowerTrace:
    """Of a GPU that changes its power at 500 ms, on a clock that is ahead."""
    stamps = [at * MS for at in range(-1000, 3000, 20)]
    powers_mw = [round(1000 * powers_w[at > 500 * MS]) for at in stamps]
    gpu = GpuTrace(
        uuid=uuid,
        index=0,
        name="g",
        sensor=shipped_model("NVIDIA H200", "580.00"),
        series=SeriesColumns(realtime_ns=stamps, power_mw=powers_mw),
        slow=SlowColumns(t_ns=[at + ahead_ns for at in stamps], temperature_c=[50] * len(stamps)),
    )
    first = stamps[0] + ahead_ns
    return PowerTrace(
        start_ns=first,
        end_ns=stamps[-1] + ahead_ns,
        gpus=(gpu,),
        offsets=OffsetColumns(t_ns=(first,), realtime_offset_ns=(-ahead_ns,), set_by_ns=(0,)),
    )


HERE = HostTrace(("GPU-a",), trace("GPU-a", (400, 400)))
CLOCK = HostClock(offset_ns=HOUR_NS, bound_ns=500_000)
THERE = HostTrace(("GPU-b",), trace("GPU-b", (200, 600), HOUR_NS), CLOCK, here=False)


def joined(*hosts: HostTrace) -> Energy:
    ranks: Sequence[Sequence[Step]] = (STEPS, STEPS)
    return joined_energy(POINT, ranks, hosts)


def test_one_host_is_as_without_hosts() -> None:
    assert joined(HERE) == window_energy(POINT, (STEPS, STEPS), trace("GPU-a", (400, 400)))


def test_joules_of_hosts_add_up_each_on_its_own_clock() -> None:
    """400 W for a second, and half a second each of 200 W and 600 W by a clock that is an hour ahead."""
    found = joined(HERE, THERE)
    assert found.energy_j == pytest.approx(800, rel=0.02)
    here, there = found.gpus
    assert (here.index, there.index, there.uuid) == (0, None, "GPU-b")
    assert there.energy_j == pytest.approx(400, rel=0.03)
    assert [gpu.temperature_c for gpu in joined_conditions([STEPS], (HERE, THERE))] == [50, 50]


def test_the_bound_of_the_clock_widens_the_bound_of_the_joules() -> None:
    """Half a millisecond at each of two ends, at the highest power there, 600 W: 0.6 J either way."""
    exact = joined(HERE, HostTrace(("GPU-b",), THERE.trace, HostClock(offset_ns=HOUR_NS), here=False)).gpus[1]
    wide = joined(HERE, THERE).gpus[1]
    assert None not in (exact.energy_low_j, exact.energy_high_j, wide.energy_low_j, wide.energy_high_j)
    assert (exact.energy_low_j or 0) - (wide.energy_low_j or 0) == pytest.approx(0.6, rel=0.01)
    assert (wide.energy_high_j or 0) - (exact.energy_high_j or 0) == pytest.approx(0.6, rel=0.01)


def test_a_gpu_of_another_host_has_no_index_in_a_phase_either() -> None:
    """And the clock widens its bounds there at each end of every step's window: 0.6 J either way in each of two."""
    spans = [(Span(name="save", start_ns=step.start_ns, end_ns=step.end_ns),) for step in STEPS]
    ranks = [[replace(step, spans=own) for step, own in zip(STEPS, spans, strict=True)]] * 2
    clocks = (CLOCK, HostClock(offset_ns=HOUR_NS))
    hosts = [HostTrace(("GPU-b",), THERE.trace, clock, here=False) for clock in clocks]
    wide, exact = (joined_energy(SAVING, ranks, (HERE, host)).phases[0].gpus for host in hosts)
    assert [(gpu.uuid, gpu.index) for gpu in wide] == [("GPU-a", 0), ("GPU-b", None)]
    assert wide[0] == exact[0]
    assert (exact[1].energy_low_j or 0) - (wide[1].energy_low_j or 0) == pytest.approx(1.2, rel=0.01)
    assert (wide[1].energy_high_j or 0) - (exact[1].energy_high_j or 0) == pytest.approx(1.2, rel=0.01)


@pytest.mark.parametrize(
    ("other", "flag"),
    [
        (HostTrace(("GPU-b",), None, here=False), "no_sampler"),
        (
            HostTrace(("GPU-b",), THERE.trace, HostClock(offset_ns=HOUR_NS, bound_ns=1_000_001), here=False),
            "clocks_apart",
        ),
    ],
)
def test_a_host_without_joules_makes_the_sum_unknown_not_smaller(other: HostTrace, flag: str) -> None:
    found = joined(HERE, other)
    assert found.energy_j is None
    assert found.gpus[0].energy_j == pytest.approx(400, rel=0.02)
    assert (found.gpus[1].energy_j, found.gpus[1].flags) == (None, (flag,))
