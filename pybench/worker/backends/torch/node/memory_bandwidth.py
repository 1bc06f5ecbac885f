"""Streams over large arrays."""

from __future__ import annotations

import torch

from pybench.model.workloads.node import MemoryBandwidth
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.node.measured import Measured, random_matrix, timed_s

_SCALAR = 0.4
_DTYPE = torch.float32
# Arrays that one pass reads or writes, as STREAM counts: no write-allocate traffic, which the caches may add.
_ARRAYS = {"copy": 2, "triad": 3}


class MemoryBandwidthBench(Measured):
    """Passes over arrays in this rank's device memory (a CPU's: the host's)."""

    def __init__(self, settings: MemoryBandwidth, ranks: TorchRanks) -> None:
        super().__init__(ranks)
        self._settings = settings
        self._arrays = [self._array(number) for number in range(_ARRAYS[settings.pattern])]

    def measure(self) -> dict[str, float]:
        """Bytes read and written over the time of a step's passes."""
        num_bytes = sum(array.nbytes for array in self._arrays) * self._settings.passes
        return {"memory_bytes_per_s": num_bytes / timed_s(self.device, self._stream)}

    def _array(self, number: int) -> torch.Tensor:
        """An H100 drew 385 W while it copied constants, 527 W while it copied random numbers at the same rate."""
        length = max(1, self._settings.array_bytes // _DTYPE.itemsize)
        if self._settings.fill == "constant":
            return torch.full((length,), float(number + 1), dtype=_DTYPE, device=self.device)
        return random_matrix(1, length, _DTYPE, self.device, self._settings.seed + number)[0]

    def _stream(self) -> None:
        for _ in range(self._settings.passes):
            if self._settings.pattern == "copy":
                self._arrays[1].copy_(self._arrays[0])
            else:
                torch.add(self._arrays[1], self._arrays[2], alpha=_SCALAR, out=self._arrays[0])
