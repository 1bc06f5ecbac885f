"""Joules of a window, from a power trace, with a bound.

Scope is the GPU board as NVML counts it: NVSwitch, PCIe switches, CPU and host memory are outside. A board's own gain
error, about ±5 %, is systematic: it cancels in ratios on one board and is apart from the bounds here.

| module | holds |
|---|---|
| `times` | seconds from two clocks |
| `readings`, `grid`, `anchors` | the counter: its readings, when it publishes, its values in time |
| `series`, `low_pass`, `ripple`, `harmonics`, `curve` | the driver's series, sensor undone, fast periods folded |
| `repeats`, `hidden` | loads in step with the samples, by the samples |
| `bridge`, `counter_filter`, `sampled_counter` | both together, with what stays unknown |
| `aliasing` | loads in step with the sensor's sampling, by their period |
| `window`, `flags`, `attempt` | joules of a window; what makes them doubtful; every GPU's result |
| `modest` | wider bounds on boards whose sensor was not measured |
| `pauses` | joules without those of a dithered load's pauses |
| `phases` | joules of prefill and of decode, and of the phases of a workload |
"""

from pybench.core.extension import REMEDY, extension_fault
from pybench.model.errors import MachineError

# Before the modules that import it: without its loops there is no estimate.
if (_FAULT := extension_fault("_energy")) is not None:
    raise MachineError(f"energy estimate: {_FAULT}; {REMEDY}")

from pybench.power.energy.aliasing import LoadPeriods
from pybench.power.energy.attempt import attempt_energy
from pybench.power.energy.pauses import without_pauses
from pybench.power.energy.phases import phase_energies, span_energies

__all__ = ["LoadPeriods", "attempt_energy", "phase_energies", "span_energies", "without_pauses"]
