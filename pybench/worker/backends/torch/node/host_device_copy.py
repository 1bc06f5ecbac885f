"""Copies between host memory and the device."""

from __future__ import annotations

import torch

from pybench.model.workloads.node import HostDeviceCopy
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.node.measured import Measured, random_bytes, timed_s


class HostDeviceCopyBench(Measured):
    """Copies of this rank's device, from and to pinned memory.

    Without a GPU "the device" is another part of the host's memory: a real copy, by the CPU, of no link, and both
    directions one after the other.
    """

    def __init__(self, settings: HostDeviceCopy, ranks: TorchRanks) -> None:
        super().__init__(ranks)
        self._settings = settings
        self._on_gpu = self.device.type == "cuda"
        directions = ("h2d", "d2h") if settings.direction == "both" else (settings.direction,)
        self._pairs = [self._pair(direction) for direction in directions]
        streams = self._pairs if self._on_gpu else ()
        self._streams = [torch.cuda.Stream(self.device) for _ in streams]  # type: ignore[no-untyped-call]

    def measure(self) -> dict[str, float]:
        """Bytes over time, both directions together. Ranks copy at once, or in turn while the others wait."""
        if self._settings.at_once:
            return {"host_copy_bytes_per_s": self._bytes_per_s()}
        rate = 0.0
        for turn in range(self.ranks.world_size):
            self.ranks.barrier()
            if turn == self.ranks.rank:
                rate = self._bytes_per_s()
        return {"host_copy_bytes_per_s": rate}

    def _bytes_per_s(self) -> float:
        num_bytes = self._settings.copies * sum(source.nbytes for source, _ in self._pairs)
        return num_bytes / timed_s(self.device, self._copy_on_streams if self._on_gpu else self._copy)

    def _copy(self) -> None:
        for source, target in self._pairs:
            for _ in range(self._settings.copies):
                target.copy_(source)

    def _copy_on_streams(self) -> None:
        """A stream for each direction; the current stream, which is timed, waits for both."""
        current = torch.cuda.current_stream(self.device)
        for stream, (source, target) in zip(self._streams, self._pairs, strict=True):
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                for _ in range(self._settings.copies):
                    target.copy_(source, non_blocking=True)
        for stream in self._streams:
            current.wait_stream(stream)

    def _pair(self, direction: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Source and target; the source's bytes are random."""
        size = self._settings.copy_bytes
        device = random_bytes(size, self.device, self._settings.seed)
        host = torch.empty(size, dtype=torch.uint8, pin_memory=self._on_gpu).copy_(device)
        return (host, torch.empty_like(device)) if direction == "h2d" else (device, host)
