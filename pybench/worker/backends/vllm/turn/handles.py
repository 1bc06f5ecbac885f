"""Weights in GPU memory that other processes open: CUDA IPC, one handle for each GPU and bucket."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch.multiprocessing import reductions

from pybench.worker.backends.turn.delivery import Named, packed, parts
from pybench.worker.backends.turn.party import Party
from pybench.worker.gpus import nvml_uuid


class Handles:
    """This rank's buckets and those of the others."""

    def __init__(self, party: Party) -> None:
        self._party = party

    @contextmanager
    def of(self, tensors: Sequence[Named]) -> Iterator[dict[str, bytes]]:
        """Copy tensors to one piece of this rank's GPU memory; gives every rank's handle, by its GPU's UUID.

        For all ranks together. The memory is there until all have left the context.
        """
        bucket = packed(list(tensors))
        device = bucket.flat.device
        torch.cuda.synchronize(device)
        uuid = nvml_uuid(torch.cuda.get_device_properties(device).uuid)
        handle = reductions.reduce_tensor(bucket.flat)  # type: ignore[no-untyped-call]
        own = {uuid: pickle.dumps((bucket.places, handle))}
        yield self._party.joined(own)
        self._party.barrier()
        del bucket
        torch.cuda.ipc_collect()  # type: ignore[no-untyped-call]

    def assist(self, tensors: Iterable[Named]) -> None:
        """Of a rank without an engine: offer its GPU's buckets."""
        for part in parts(tensors):
            with self.of(part):
                pass
