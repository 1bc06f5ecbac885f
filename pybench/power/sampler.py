"""Joules of named parts of a program: the sampler as a Python API.

::

    with pybench.PowerSampler() as power:
        with power.window("train", sync=torch.cuda.synchronize) as window:
            train()
        print(window.energy())                       # 2,315.0 J ±0.8 % in 5.00 s, 463.0 W

Times are CLOCK_MONOTONIC ns, as ``time.monotonic_ns()`` gives; energies J, powers W.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pybench.machine.gpus import gpus_to_measure
from pybench.model.errors import MachineError, UsageError
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


@dataclass(eq=False)
class Window:
    """A part of a program, ``start_ns`` to ``end_ns`` on CLOCK_MONOTONIC; ``end_ns`` is ``None`` until it has ended.

    ``trace`` is the recording that it is part of, once that has ended.
    """

    name: str
    start_ns: int
    end_ns: int | None
    sampler: PowerSampler = field(repr=False)
    trace: PowerTrace | None = field(default=None, repr=False)
    _joules: dict[float | None, Energy] = field(default_factory=dict, repr=False)

    def energy(self, period_s: float | None = None) -> Energy:
        """Joules of this window, as :meth:`PowerSampler.energy`; computed once, so they outlast the recording."""
        if period_s not in self._joules:
            self._joules[period_s] = self.sampler.energy(self, period_s)
        return self._joules[period_s]


class PowerSampler(PowerRecorder):
    """Samples GPUs, all that are visible unless ``uuids`` names some, and knows the joules of named windows.

    A GPU that can't be queried is left out with a ``RuntimeWarning``. Raises ``MachineError`` where no GPU can be
    sampled. With ``required=False`` every energy is then unknown, and ``unavailable_reason`` has the reason.

    Every mark and every end of a window costs two to five readings of a GPU's energy counter, some 10 ms of CPU time.
    """

    unavailable_reason: str | None = None

    def __init__(self, uuids: Sequence[str] | None = None, *, required: bool = True) -> None:
        self._required = required
        try:
            inventory = gpus_to_measure() if uuids is None else None
        except MachineError as error:
            self._give_up(error)
            inventory = None
        if inventory is not None:
            uuids = [gpu.uuid for gpu in inventory.gpus]
            for fault in inventory.faults:
                warnings.warn(f"power sampler: {fault}; left out", RuntimeWarning, stacklevel=2)
        super().__init__(uuids or ())
        self._marks_ns: dict[str, int] = {}
        self._windows: dict[str, list[Window]] = {}
        self._trace: PowerTrace | None = None

    def start(self) -> None:
        """As :meth:`PowerRecorder.start`; joules are of this session's windows from here on."""
        self._trace = None
        try:
            if self.unavailable_reason is None:
                super().start()
        except MachineError as error:
            self._give_up(error)

    def mark(self, name: str) -> int:
        """Remember this moment as ``name``, instead of an earlier one of that name; CLOCK_MONOTONIC ns."""
        self._marks_ns[name] = self._end()
        return self._marks_ns[name]

    @contextmanager
    def window(self, name: str, sync: Callable[[], object] | None = None) -> Iterator[Window]:
        """The ``with`` block as a window; ``sync`` is called at both ends and returns when the device is done.

        A name may be used again: each block is a window of its own, and :meth:`windows` has them all.
        """
        if sync is not None:
            sync()
        window = Window(name, self._end(), None, self)
        try:
            yield window
            if sync is not None:
                sync()
        finally:
            window.end_ns = self._end()
            self._windows.setdefault(name, []).append(window)

    def windows(self, name: str) -> tuple[Window, ...]:
        """All windows of a name that have ended, in that order."""
        return tuple(self._windows.get(name, ()))

    def between(self, first_mark: str, last_mark: str) -> Window:
        """The window between two marks. Raises ``UsageError`` when one was not set."""
        for name in (first_mark, last_mark):
            if name not in self._marks_ns:
                raise UsageError(f'no mark "{name}"; marks are: {", ".join(self._marks_ns) or "none"}')
        return Window(f"{first_mark}..{last_mark}", self._marks_ns[first_mark], self._marks_ns[last_mark], self)

    def energy(self, window: Window | str, period_s: float | None = None) -> Energy:
        """Joules of a window that has ended, while sampling or after; ``period_s`` is the load's own, if it has one.

        Returns within half a second. Raises ``UsageError`` for a window that is unknown, empty or still open, and for
        the name of several windows.
        """
        if isinstance(window, str):
            windows = self.windows(window)
            if not windows:
                raise UsageError(f'no window "{window}"; windows are: {", ".join(self._windows) or "none"}')
            if len(windows) > 1:
                raise UsageError(f'{len(windows)} windows are named "{window}"; take one of windows("{window}")')
            window = windows[0]
        if window.end_ns is None:
            raise UsageError(f'window "{window.name}" has not ended')
        if window.end_ns <= window.start_ns:
            raise UsageError(f'window "{window.name}" ends before it starts')
        if self.unavailable_reason is not None:
            return Energy(start_ns=window.start_ns, end_ns=window.end_ns, gpus=())
        trace = window.trace or self._trace
        if trace is None:  # the data near the window; only a recent window's end may still lack readings
            settle(window.end_ns)
            recent = time.monotonic_ns() - window.end_ns < RECENT_NS
            first_ns, last_ns = max(0, window.start_ns - NEAR_NS), window.end_ns + NEAR_NS
            trace = self.snapshot(first_ns, search=recent, until_ns=last_ns)
        return attempt_energy(
            trace, window.start_ns, window.end_ns, None if period_s is None else LoadPeriods((period_s,))
        )

    def stop(self) -> PowerTrace:
        """As :meth:`PowerRecorder.stop`; energies of windows can be computed afterwards, too."""
        now_ns = time.monotonic_ns()
        if self.unavailable_reason is not None:
            return PowerTrace(start_ns=now_ns, end_ns=now_ns, gpus=())
        ended = [window for windows in self._windows.values() for window in windows if window.trace is None]
        settle(max((window.end_ns or 0 for window in ended), default=0))
        self._trace = super().stop()
        for window in ended:
            window.trace = self._trace
        return self._trace

    def _give_up(self, error: MachineError) -> None:
        """Go on without power where it is not required."""
        if self._required:
            raise error
        self.unavailable_reason = str(error)

    def _end(self) -> int:
        """An end of a window, now: the counter's next step is requested where the driver allows it."""
        now_ns = time.monotonic_ns()
        if self.is_running:
            self.anchor()
        return now_ns


def settle(end_ns: int) -> None:
    """Wait until the driver has sampled past ``end_ns``."""
    time.sleep(max(0.0, SETTLE_S - (time.monotonic_ns() - end_ns) / 1e9))
