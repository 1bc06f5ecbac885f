"""A process that samples may fork: the child is refused the parent's sampler, may have its own, and never deadlocks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

pytest.importorskip("pybench._nvml", reason="the extension is not built")

SCRIPT = """
import gc, os, sys, time, warnings
from pybench.power.recorder import PowerRecorder, sampler_unavailable_reason
from pybench.model.errors import MachineError

gc.freeze()  # of what was imported: else each child's end looks at all of it, which takes most of its time
warnings.simplefilter("ignore")  # newer Pythons warn of any fork beside threads: that is what is tried here
uuids = [f"GPU-{i:08}-fake-4000-8000-{i:012}" for i in range(8)]

def refused(call):
    try:
        call()
    except MachineError as error:
        return str(error) == "power sampler: the sampler runs in another process"
    return False

def in_child(sampler, number):
    well = refused(sampler.latest_power_w) and refused(sampler.snapshot) and refused(sampler.stop)
    well = well and sampler_unavailable_reason() is None
    if number % 10 == 0:
        with PowerRecorder(uuids) as own:
            while not len(own.snapshot().gpus[7].counter.energy_mj):
                pass  # each snapshot waits for a step of the counter, for half a second
    return well

sampler = PowerRecorder(uuids, polled_period_s=0.1)
sampler.start()
for number in range(200):
    child = os.fork()
    if child == 0:
        if number % 2:
            os._exit(0 if in_child(sampler, number) else 1)
        sys.exit(0 if in_child(sampler, number) else 1)  # with all that Python does at its end
    _, status = os.waitpid(child, 0)
    if status != 0:
        print("child", number, "ended with", status)
trace = sampler.stop()
print([gpu.state for gpu in trace.gpus] == ["ok"] * 8, all(len(gpu.polled.t_ns) > 10 for gpu in trace.gpus))
"""


@pytest.mark.parametrize("told", [{}, {"latency": "h200", "global_lock": 1}], ids=["quick", "slow calls"])
def test_two_hundred_forks(fake_nvml: Callable[..., None], told: dict[str, object]) -> None:
    fake_nvml(devices=8, **told)
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=250)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True True\n", "")
