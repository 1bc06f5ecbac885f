"""Joules of named parts of a program: the sampler as a Python API.

::

    with pybench.PowerSampler() as power:
        with power.window("train", sync=torch.cuda.synchronize):
            train()
        print(power.energy("train").energy_j)        # J, all GPUs together; None when one is unknown

Times are CLOCK_MONOTONIC ns, as ``time.monotonic_ns()`` gives; energies J, powers W.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pybench.machine.gpus import gpus_to_measure
from pybench.model.errors import UsageError
from pybench.model.record import Energy
from pybench.power.estimate import attempt_energy
from pybench.power.in_step import LoadPeriods
from pybench.power.recorder import PowerRecorder
from pybench.power.trace import PowerTrace

# The series' next sample after a window's end shows the shape before it; then the counter is read until it steps.
SETTLE_S = 0.06
# Readings this long before a window and after it show when the counter publishes; those of its end have come after a
# second.
NEAR_NS = 70_000_000_000
RECENT_NS = 1_000_000_000


@dataclass(frozen=True)
class Window:
    """A part of a program, ``start_ns`` to ``end_ns``."""

    name: str
    start_ns: int
    end_ns: int


class PowerSampler(PowerRecorder):
    """Samples GPUs, all that are visible unless ``uuids`` names some, and knows the joules of named windows.

    A GPU that can't be queried is left out with a ``RuntimeWarning``. Raises ``MachineError`` where none is visible.

    Every mark and every end of a window costs two to five readings of a GPU's energy counter, some 10 ms of CPU time.
    """

    def __init__(self, uuids: Sequence[str] | None = None) -> None:
        if uuids is None:
            found = gpus_to_measure()
            for fault in found.faults:
                warnings.warn(f"power sampler: {fault}; left out", RuntimeWarning, stacklevel=2)
            uuids = [gpu.uuid for gpu in found.gpus]
        super().__init__(uuids)
        self._marks_ns: dict[str, int] = {}
        self._windows: dict[str, Window] = {}
        self._trace: PowerTrace | None = None

    def start(self) -> None:
        """As :meth:`PowerRecorder.start`; joules are of this session's windows from here on."""
        super().start()
        self._trace = None

    def mark(self, name: str) -> int:
        """Remember this moment as ``name``, instead of an earlier one of that name; CLOCK_MONOTONIC ns."""
        self._marks_ns[name] = self._end()
        return self._marks_ns[name]

    @contextmanager
    def window(self, name: str, sync: Callable[[], object] | None = None) -> Iterator[None]:
        """The ``with`` block as a window; ``sync`` is called at both ends and returns when the device is done."""
        if sync is not None:
            sync()
        start_ns = self._end()
        try:
            yield
            if sync is not None:
                sync()
        finally:
            self._windows[name] = Window(name, start_ns, self._end())

    def between(self, first_mark: str, last_mark: str) -> Window:
        """The window between two marks. Raises ``UsageError`` when one was not set."""
        for name in (first_mark, last_mark):
            if name not in self._marks_ns:
                raise UsageError(f'no mark "{name}"; marks are: {_listed(self._marks_ns)}')
        return Window(f"{first_mark}..{last_mark}", self._marks_ns[first_mark], self._marks_ns[last_mark])

    def energy(self, window: Window | str, period_s: float | None = None) -> Energy:
        """Joules of a window that has ended, while sampling or after; ``period_s`` is the load's own, if it has one.

        Returns within half a second. Raises ``UsageError`` for a window that is not known or is empty.
        """
        if isinstance(window, str):
            if window not in self._windows:
                raise UsageError(f'no window "{window}"; windows are: {_listed(self._windows)}')
            window = self._windows[window]
        if window.end_ns <= window.start_ns:
            raise UsageError(f'window "{window.name}" ends before it starts')
        trace = self._trace or self._covering(window)
        return attempt_energy(trace, window.start_ns, window.end_ns, LoadPeriods.of_period(period_s))

    def stop(self) -> PowerTrace:
        """As :meth:`PowerRecorder.stop`; energies of windows can be computed afterwards, too."""
        settle(max((window.end_ns for window in self._windows.values()), default=0))
        self._trace = super().stop()
        return self._trace

    def _end(self) -> int:
        """An end of a window, now: the counter's next step is requested where the driver allows it."""
        now_ns = time.monotonic_ns()
        if self.is_running:
            self.anchor()
        return now_ns

    def _covering(self, window: Window) -> PowerTrace:
        """The data near a window; waits for the readings after its end only if that is recent."""
        settle(window.end_ns)
        recent = time.monotonic_ns() - window.end_ns < RECENT_NS
        return self.snapshot(max(0, window.start_ns - NEAR_NS), search=recent, until_ns=window.end_ns + NEAR_NS)


def settle(end_ns: int) -> None:
    """Wait until the driver has sampled past ``end_ns``."""
    time.sleep(max(0.0, SETTLE_S - (time.monotonic_ns() - end_ns) / 1e9))


def _listed(names: dict[str, int] | dict[str, Window]) -> str:
    return ", ".join(names) or "none"
