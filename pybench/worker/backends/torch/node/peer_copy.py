"""Copies from every device to every other one."""

from __future__ import annotations

from itertools import permutations

import torch
from torch import distributed

from pybench.model.workloads.peer_copy import PeerCopy
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.node.host_barrier import HostBarrier
from pybench.worker.backends.torch.node.measured import Measured
from pybench.worker.backends.torch.node.operands import random_bytes
from pybench.worker.backends.torch.node.stopwatch import timed_s


class PeerCopyBench(Measured):
    """One ordered pair at a time; the rank that sends measures.

    On GPUs the sender's process copies into the peer's memory itself (cudaMemcpy from device to device: peer-to-peer
    where the driver allows it). Without a GPU ranks send through gloo: a real way between two processes, over loopback.
    """

    def __init__(self, settings: PeerCopy, ranks: TorchRanks) -> None:
        super().__init__(ranks)
        self._settings = settings
        self._barrier = HostBarrier(ranks)
        self._own = random_bytes(settings.peer_bytes, self.device, settings.seed + ranks.rank)
        others = [peer for peer in range(ranks.world_size) if peer != ranks.rank]
        self._targets = {peer: self._target(peer) for peer in others}
        self._done = torch.zeros(1, dtype=torch.uint8)

    def measure(self) -> dict[str, float]:
        """Bytes/s from this rank to each other one (``link_to_3_bytes_per_s``), and over its slowest link."""
        found: dict[int, float] = {}
        for sender, receiver in permutations(range(self.ranks.world_size), 2):
            self._barrier.wait()
            if self.ranks.rank == sender:
                num_bytes = self._own.nbytes * self._settings.peer_copies
                found[receiver] = num_bytes / timed_s(self.device, lambda peer=receiver: self._send(peer))  # type: ignore[misc]
            elif self.ranks.rank == receiver and self.device.type == "cpu":
                self._receive(sender)
        self._barrier.wait()  # whoever is done early would wait in a collective
        links = {f"link_to_{peer}_bytes_per_s": speed for peer, speed in found.items()}
        return {"peer_copy_bytes_per_s": min(found.values()), **links}

    def _target(self, peer: int) -> torch.Tensor:
        """Memory on the peer's device. Ranks are numbered as devices are: one node, one rank for each."""
        where = torch.device("cuda", peer) if self.device.type == "cuda" else self.device
        return torch.empty_like(self._own, device=where)

    def _send(self, peer: int) -> None:
        for _ in range(self._settings.peer_copies):
            if self.device.type == "cuda":
                self._targets[peer].copy_(self._own, non_blocking=True)
            else:
                distributed.send(self._own, peer)
        if self.device.type == "cpu":
            # A send may return before its bytes are there: the receiver's word ends the time.
            distributed.recv(self._done, peer)

    def _receive(self, peer: int) -> None:
        for _ in range(self._settings.peer_copies):
            distributed.recv(self._targets[peer], peer)
        distributed.send(self._done, peer)
