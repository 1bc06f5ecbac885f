"""What this rank's GPUs send over NVLink while steps are measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pybench.model.wire import Event, Metric, Phase, Step
from pybench.worker.gpus import nvlink_sent_bytes


class NvlinkTraffic:
    """Reads the counters of ``uuids`` twice: before the first measured step, and after the last.

    No rank is in a measured step before all of them have read, and none goes on before the last step has ended on all.
    """

    def __init__(self, uuids: Sequence[str], read: Callable[[str], int | None] = nvlink_sent_bytes) -> None:
        self._uuids = tuple(uuids)
        self._num_steps = 0
        self._read = read
        self._counts: list[int | None] = []

    def note(self, event: Event) -> None:
        """Read as measuring begins and ends, and count the steps between."""
        self._num_steps += isinstance(event, Step) and event.phase == "measure"
        if self._uuids and isinstance(event, Phase) and event.name in {"measure", "finish"}:
            self._counts.append(self._total())

    def metrics(self) -> tuple[Metric, ...]:
        """Bytes of a step; nothing where a counter is unknown, or was set back meanwhile."""
        if not self._num_steps or len(self._counts) < 2 or None in self._counts:  # noqa: PLR2004 - begin and end
            return ()
        before, after = (count or 0 for count in self._counts)
        if after < before:
            return ()
        return (Metric(name="nvlink_sent_bytes", value=(after - before) / self._num_steps, unit="bytes"),)

    def _total(self) -> int | None:
        known = [count for uuid in self._uuids if (count := self._read(uuid)) is not None]
        return sum(known) if len(known) == len(self._uuids) else None
