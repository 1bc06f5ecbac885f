"""Waiting for the other ranks without a GPU."""

from __future__ import annotations

from torch import distributed
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from pybench.worker.backends.common_torch.process_group import TorchRanks

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
