"""A machine that stands still at a stop or a snapshot: no driver call hangs for it, and no step of a counter is lost.

Where the sampler waits by the clock alone, the tests of stops and snapshots of a healthy driver fail each time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pybench._nvml", reason="the extension is not built")

Tell = Callable[..., None]
# Longer than a call must take to be a stall, and than any limit at a stop.
STANDSTILL_S = 1.3
# Shorter than a hanging call, also on an idle machine. Some such calls fit into the limit of a stop.
SLOW_US = 180_000

# Stops right before a call of the sampler or soon after its begin, and prints its result.
_SAMPLES = f"""
import sys; sys.path[:0] = {sys.path!r}
import ctypes, json, os, signal, threading, time
from pybench.power.recorder import PowerRecorder

library, method, when, seconds, counter_period_s = sys.argv[1:]
energy_j = ctypes.CDLL(library).fake_nvml_energy_j
energy_j.restype, energy_j.argtypes = ctypes.c_double, (ctypes.c_int, ctypes.c_int64)

def stand_still():
    os.kill(os.getpid(), signal.SIGSTOP)

sampler = PowerRecorder(
    [f"GPU-{{i:08}}-fake-4000-8000-{{i:012}}" for i in range(2)], counter_period_s=float(counter_period_s)
)
sampler.start()
time.sleep(float(seconds))
if when == "before":
    stand_still()
else:
    threading.Timer(0.05, stand_still).start()
called_ns = time.monotonic_ns()
trace = getattr(sampler, method)()
counted_j = [int(gpu.counter.energy_mj[-1]) / 1e3 - 5e6 for gpu in trace.gpus]
print(json.dumps({{
    "states": [gpu.state for gpu in trace.gpus],
    "stepped": [counted_j[i] > energy_j(i, called_ns) - 0.002 for i in range(2)],
    "pollers": trace.num_pollers,
}}))
"""


def sampled(library: Path, method: str, when: str, seconds: float = 0.5, counter_period_s: float = 60.0) -> Any:
    """Output of a process that stood still around a call of the sampler, at this time after its start."""
    settings = (str(library), method, when, str(seconds), str(counter_period_s))
    with subprocess.Popen((sys.executable, "-c", _SAMPLES, *settings), stdout=subprocess.PIPE, text=True) as process:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        time.sleep(STANDSTILL_S)
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate()
    return json.loads(out)


@pytest.mark.parametrize("method", ["stop", "snapshot"])
def test_within(fake_nvml: Tell, fake_library: Path, method: str) -> None:
    """In the midst of a reading of the counter."""
    fake_nvml(latency=f"nvmlDeviceGetTotalEnergyConsumption:{SLOW_US}")
    found = sampled(fake_library, method, "within")
    assert (found["states"], found["stepped"]) == (["ok", "ok"], [True, True])


@pytest.mark.parametrize("method", ["stop", "snapshot"])
def test_before(fake_nvml: Tell, fake_library: Path, method: str) -> None:
    """In the midst of a reading of the counter, which is read all the time, too."""
    fake_nvml(latency=f"nvmlDeviceGetTotalEnergyConsumption:{SLOW_US}")
    found = sampled(fake_library, method, "before", counter_period_s=0.01)
    assert found["states"] == ["ok", "ok"]
    # Half a second is too short for the search that a snapshot joins.
    assert found["stepped"] == [True, True] or method == "snapshot"


def test_a_poller_keeps_its_gpus(fake_nvml: Tell, fake_library: Path) -> None:
    """One reads both of them, from two seconds after the start at the latest."""
    fake_nvml(latency="nvmlDeviceGetTotalEnergyConsumption:8000")
    found = sampled(fake_library, "stop", "before", seconds=2.5, counter_period_s=0.001)
    assert (found["states"], found["pollers"]) == (["ok", "ok"], 1)


def test_a_call_that_hangs(fake_nvml: Tell, fake_library: Path) -> None:
    """It ends no wait, and its GPU is known by it all the same."""
    fake_nvml(hang="nvmlDeviceGetTotalEnergyConsumption:45000:1@call=4")
    found = sampled(fake_library, "stop", "within")
    assert (found["states"], found["stepped"]) == (["ok", "stalled"], [True, False])
