"""Observation of an attempt's GPUs: their power, the driver's error counts, and foreign processes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Self

from pybench.machine.gpu_processes import ProcessFacts
from pybench.machine.health_watch import HealthWatch
from pybench.model.container import ContainerRun
from pybench.model.record import Health
from pybench.model.wire import Event, Phase
from pybench.power.recorder import PowerRecorder
from pybench.power.trace import PowerTrace
from pybench.run.engines.process import ATTEMPT_VARIABLE


class GpuObservation:
    """Observes the GPUs named by UUID, none for a CPU point, between being entered and left."""

    def __init__(self, uuids: Sequence[str], *, with_power: bool) -> None:
        self.samples_power = with_power and bool(uuids)
        self._sampler = PowerRecorder(uuids) if self.samples_power else None
        self._watch = HealthWatch(uuids) if uuids else None
        self._open = ExitStack()
        self.trace: PowerTrace | None = None

    def __enter__(self) -> Self:
        """Begin. Raises ``MachineError`` when power can't be sampled."""
        if self._sampler:
            self._sampler.start()
            self._open.callback(self._stop, self._sampler)
        if self._watch:
            self._open.enter_context(self._watch)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def note(self, rank: int, event: Event) -> None:
        """Have the energy counters read where the window begins and ends."""
        if self._sampler and rank == 0 and isinstance(event, Phase) and event.name in {"measure", "finish"}:
            self._sampler.anchor()

    def power_w(self) -> float | None:
        """Newest power of all GPUs together, ``None`` where one's is unknown."""
        watts = list(self._sampler.latest_power_w().values()) if self._sampler else [None]
        known = [each for each in watts if each is not None]
        return sum(known) if len(known) == len(watts) else None

    def health(self, is_foreign: Callable[[ProcessFacts], bool]) -> Health | None:
        """The driver's error counts, and foreign processes. Complete once the attempt is over."""
        return self._watch.health(is_foreign) if self._watch else None

    def _stop(self, sampler: PowerRecorder) -> None:
        self.trace = sampler.stop()


# Serves the processes that compute, which are listed beside it. The kernel keeps 15 letters of a name.
_SERVER = "nvidia-cuda-mps"
_CONTAINER_ID = re.compile(r"[0-9a-f]{64}")


def is_foreign(facts: ProcessFacts, run_mark: str, container: ContainerRun | None) -> bool:
    """Whether the process is, as far as is known, no worker of the run ``run_mark`` and its ``container``."""
    if os.getpid() in facts.ancestors or facts.name.startswith(_SERVER):
        return False
    prefix = f"{ATTEMPT_VARIABLE}={run_mark}/".encode()
    if any(item.startswith(prefix) for item in facts.environment or ()):
        return False
    if container is None or not facts.in_container:
        return True
    # Root inside a container is often another user outside, so that only the group's name shows whose it is.
    ids = _CONTAINER_ID.findall(facts.cgroup)
    return bool(ids) and container.id.removeprefix("sha256:") not in ids
