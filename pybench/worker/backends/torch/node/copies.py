"""Node workloads of memories: streams, copies between host and device, copies between devices."""

from __future__ import annotations

from itertools import permutations

import torch
from torch import distributed

from pybench.model.workloads.node import HostDeviceCopy, MemoryBandwidth, PeerCopy
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.node.measured import Measured, random_bytes, random_matrix, timed_s

_SCALAR = 0.4
_DTYPE = torch.float32
# Arrays that one pass reads or writes, as STREAM counts: no write-allocate traffic, which the caches may add.
_ARRAYS = {"copy": 2, "triad": 3}


class MemoryBandwidthBench(Measured[MemoryBandwidth]):
    """Passes over arrays in this rank's device memory (a CPU's: the host's)."""

    def __init__(self, settings: MemoryBandwidth, ranks: TorchRanks) -> None:
        super().__init__(settings, ranks)
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


class HostDeviceCopyBench(Measured[HostDeviceCopy]):
    """Copies of this rank's device, from and to pinned memory.

    Without a GPU "the device" is another part of the host's memory: a real copy, by the CPU, of no link, and both
    directions one after the other.
    """

    def __init__(self, settings: HostDeviceCopy, ranks: TorchRanks) -> None:
        super().__init__(settings, ranks)
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


class PeerCopyBench(Measured[PeerCopy]):
    """One ordered pair at a time; the rank that sends measures.

    On GPUs the sender's process copies into the peer's memory itself (cudaMemcpy from device to device: peer-to-peer
    where the driver allows it). Without a GPU ranks send through gloo: a real way between two processes, over loopback.
    """

    def __init__(self, settings: PeerCopy, ranks: TorchRanks) -> None:
        super().__init__(settings, ranks)
        # Ranks that wait on their GPUs keep a kernel spinning there, which takes turns with the copies to such a GPU.
        self._on_cpus = distributed.new_group(backend="gloo")
        self._own = random_bytes(settings.peer_bytes, self.device, settings.seed + ranks.rank)
        others = [peer for peer in range(ranks.world_size) if peer != ranks.rank]
        # Ranks are numbered as devices are: one node, one rank for each.
        places = {peer: torch.device("cuda", peer) if self.device.type == "cuda" else self.device for peer in others}
        self._targets = {peer: torch.empty_like(self._own, device=place) for peer, place in places.items()}
        self._done = torch.zeros(1, dtype=torch.uint8)

    def measure(self) -> dict[str, float]:
        """Bytes/s from this rank to each other one (``link_to_3_bytes_per_s``), and over its slowest link."""
        rates: dict[int, float] = {}
        for sender, receiver in permutations(range(self.ranks.world_size), 2):
            distributed.barrier(self._on_cpus)
            if self.ranks.rank == sender:
                num_bytes = self._own.nbytes * self._settings.peer_copies
                rates[receiver] = num_bytes / timed_s(self.device, lambda peer=receiver: self._send(peer))  # type: ignore[misc]
            elif self.ranks.rank == receiver and self.device.type == "cpu":
                for _ in range(self._settings.peer_copies):
                    distributed.recv(self._targets[sender], sender)
                distributed.send(self._done, sender)
        distributed.barrier(self._on_cpus)  # whoever is done early would wait in a collective
        links = {f"link_to_{peer}_bytes_per_s": speed for peer, speed in rates.items()}
        return {"peer_copy_bytes_per_s": min(rates.values()), **links}

    def _send(self, peer: int) -> None:
        for _ in range(self._settings.peer_copies):
            if self.device.type == "cuda":
                self._targets[peer].copy_(self._own, non_blocking=True)
            else:
                distributed.send(self._own, peer)
        if self.device.type == "cpu":
            # A send may return before its bytes are there: the receiver's word ends the time.
            distributed.recv(self._done, peer)
