"""Copies from every device to every other one."""

from __future__ import annotations

from itertools import permutations

import torch
from torch import distributed
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from pybench.model.workloads.node import PeerCopy
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.node.measured import Measured, random_bytes, timed_s


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
        rates: dict[int, float] = {}
        for sender, receiver in permutations(range(self.ranks.world_size), 2):
            self._barrier.wait()
            if self.ranks.rank == sender:
                num_bytes = self._own.nbytes * self._settings.peer_copies
                rates[receiver] = num_bytes / timed_s(self.device, lambda peer=receiver: self._send(peer))  # type: ignore[misc]
            elif self.ranks.rank == receiver and self.device.type == "cpu":
                self._receive(sender)
        self._barrier.wait()  # whoever is done early would wait in a collective
        links = {f"link_to_{peer}_bytes_per_s": speed for peer, speed in rates.items()}
        return {"peer_copy_bytes_per_s": min(rates.values()), **links}

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


_HOST = "127.0.0.1"


class HostBarrier:
    """Ranks of one host wait on their CPUs, at a store of rank 0's; made by all ranks together.

    Ranks that wait in a collective keep a kernel spinning on their GPUs, which takes turns there with whatever another
    process has to do on them: copies to such a GPU would wait for the turn.
    """

    def __init__(self, ranks: TorchRanks) -> None:
        self._world_size = ranks.world_size
        self._num_waits = 0
        mine = self._at(0, master=True) if ranks.rank == 0 else None
        ports = [mine.port if mine else None]
        distributed.broadcast_object_list(ports, src=0, device=ranks.device)
        self._store = mine or self._at(ports[0] or 0, master=False)

    def wait(self) -> None:
        """Return when every rank has come."""
        self._num_waits += 1
        everyone = f"all came to {self._num_waits}"
        if self._store.add(f"came to {self._num_waits}", 1) == self._world_size:
            self._store.set(everyone, "yes")
        self._store.wait([everyone])

    @staticmethod
    def _at(port: int, *, master: bool) -> TCPStore:
        return TCPStore(_HOST, port, is_master=master, wait_for_workers=False)
