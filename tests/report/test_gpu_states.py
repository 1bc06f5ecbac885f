"""GPUs under load in reports."""

from __future__ import annotations

import dataclasses

from pybench.model.record import GpuState
from pybench.model.results import Results
from pybench.report.formats import render
from pybench.report.run.rows import gpu_names, gpu_state_table
from pybench.report.run.view import RunView
from tests.builders import estimate

_STATES = (
    GpuState(uuid="GPU-a", index=0, sm_clock_hz=1.755e9, temperature_c=61.0, held_by=("power limit",)),
    GpuState(uuid="GPU-b", index=None, sm_clock_hz=None, temperature_c=None, held_by=None),
    GpuState(uuid="GPU-c", index=2, sm_clock_hz=1.98e9, temperature_c=40.4, held_by=()),
)
_UNINDEXED = ("GPU-11111111", "GPU-11111111-2222-3333-4444-555555555555")


def _with_states(results: Results, metric: str) -> Results:
    speed = estimate(5e14, "FLOP/s")
    point = dataclasses.replace(results.points[0], metrics={metric: speed}, gpu_states=_STATES)
    return dataclasses.replace(results, points=(point,))


def test_burn_shows_every_gpu(results: Results) -> None:
    """Clock, temperature and what held the clock; unknown is a dash. A table of their own has the UUIDs."""
    shown = _with_states(results, "burn_flops_per_s")
    assert gpu_state_table(shown, {shown.points[0].id: "burn"}).rows == (
        ("burn", "GPU 0", "1,755 MHz", "61 °C", "power limit"),
        ("burn", "GPU-b", "-", "-", "-"),
        ("burn", "GPU 2", "1,980 MHz", "40 °C", "nothing"),
    )
    named = tuple((name, uuid) for uuid, name in gpu_names(shown).items())
    assert named == (_UNINDEXED, ("GPU 0", "GPU-a"), ("GPU-b", "GPU-b"), ("GPU 2", "GPU-c"))
    assert "GPUs under load" in render(RunView(results=shown), "markdown")


def test_other_work_shows_none(results: Results) -> None:
    """Without a steady load a clock shows pauses as well; results.json has the states anyway."""
    shown = _with_states(results, "output_tokens_per_s")
    assert "GPUs under load" not in render(RunView(results=shown), "markdown")
    assert '"temperature_c": 61.0' in render(RunView(results=shown), "json")
