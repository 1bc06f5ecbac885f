"""One process with the part of a rank, where collectives exchange nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import distributed
from torch.testing._internal.distributed.fake_pg import FakeStore


@contextmanager
def first_of(num_ranks: int) -> Iterator[None]:
    """The first of so many ranks."""
    if distributed.is_initialized():
        distributed.destroy_process_group()  # a lone rank's, which an earlier test of this process made
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=num_ranks)
    try:
        yield
    finally:
        distributed.destroy_process_group()
