"""Trace files come back as they were written."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pybench.machine import trace_file
from pybench.machine.trace_file import read_trace, write_trace
from pybench.model.errors import MachineError
from pybench.model.trace import (
    CounterColumns,
    GpuTrace,
    OffsetColumns,
    PolledColumns,
    PowerTrace,
    SeriesColumns,
    SlowColumns,
    StallColumns,
)

PLANES: dict[str, Any] = {
    "counter": CounterColumns(before_ns=[1, 2], after_ns=[2, 3], energy_mj=[2**63 + 1, 2**63 + 2]),
    "series": SeriesColumns(realtime_ns=[5], power_mw=[400_000]),
    "polled": PolledColumns(t_ns=[1], instant_mw=[-1], average_mw=[7], memory_mw=[8]),
    "slow": SlowColumns(t_ns=[1], temperature_c=[55], sm_clock_mhz=[-1], memory_clock_mhz=[3201]),
    "stalls": StallColumns(start_ns=[4], end_ns=[9]),
}


def test_round_trip(tmp_path: Path) -> None:
    gpu = GpuTrace(
        uuid="GPU-0",
        index=3,
        name="x",
        state="stalled",
        failed_calls=1,
        missed_ticks=2,
        dropped_records=3,
        capabilities=("counter", "series"),
        scope="module",
        mig=False,
        shared_board=True,
        **PLANES,
    )
    offsets = OffsetColumns(t_ns=[1, 2], realtime_offset_ns=[10**18, 10**18 + 1])
    trace = PowerTrace(start_ns=1, end_ns=2, gpus=(gpu,), offsets=offsets, boot_id="b", num_pollers=2)
    write_trace(trace, tmp_path / "power.npz")
    again = read_trace(tmp_path / "power.npz")
    bare = GpuTrace(uuid="", index=0, name="")
    stripped = {plane: getattr(bare, plane) for plane in PLANES}
    assert replace(again.gpus[0], **stripped) == replace(gpu, **stripped)
    assert replace(again, gpus=(), offsets=OffsetColumns()) == replace(trace, gpus=(), offsets=OffsetColumns())
    np.testing.assert_array_equal(again.offsets.realtime_offset_ns, offsets.realtime_offset_ns)
    for plane, written in PLANES.items():
        for field in fields(written):
            np.testing.assert_array_equal(
                getattr(getattr(again.gpus[0], plane), field.name), getattr(written, field.name)
            )


def test_empty_trace(tmp_path: Path) -> None:
    trace = PowerTrace(start_ns=1, end_ns=2, gpus=(GpuTrace(uuid="GPU-0", index=0, name="x", state="lost"),))
    write_trace(trace, tmp_path / "power.npz")
    again = read_trace(tmp_path / "power.npz")
    assert (again.start_ns, again.end_ns, again.gpus[0].state, again.boot_id) == (1, 2, "lost", None)
    assert len(again.gpus[0].counter.energy_mj) == 0


def test_other_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_file, "TRACE_VERSION", 7)
    path = tmp_path / "power.npz"
    write_trace(PowerTrace(start_ns=1, end_ns=2, gpus=()), path)
    monkeypatch.undo()
    with pytest.raises(MachineError, match=r"power\.npz: trace version 7, this pybench reads 3; read it with"):
        read_trace(path)
