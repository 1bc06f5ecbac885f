"""Sustained products whose results must not change by a bit."""

from __future__ import annotations

import time

import torch

from pybench.model.workloads.node import Burn
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.node.measured import Measured, random_matrix, timed_s

# Time of work between two reads of the clock, which bounds how far a step overshoots.
_CHUNK_S = 0.1
# JSON readers keep integers whole up to here.
CHECKSUM_MODULUS = 2**53
_BITS = {2: torch.int16, 4: torch.int32}


class BurnBench(Measured):
    """The same product again and again; every result is held against the first, bit for bit, on the device."""

    def __init__(self, settings: Burn, ranks: TorchRanks) -> None:
        super().__init__(ranks)
        self._settings = settings
        # Float32 products must not fall to TF32, whose results are another kernel's.
        torch.set_float32_matmul_precision("highest")
        dtype = getattr(torch, settings.burn_precision)
        side, seed = settings.side, settings.seed
        # Drawn on the device, in milliseconds: devices of one kind draw the same, unless one is faulty.
        self._left = random_matrix(side, side, dtype, self.device, seed)
        self._right = random_matrix(side, side, dtype, self.device, seed + 1)
        self._out = torch.empty_like(self._left)
        self._reference = torch.mm(self._left, self._right)
        self._differing = torch.zeros((), dtype=torch.int64, device=self.device)
        self._chunk = 1
        self._chunk = max(1, round(_CHUNK_S / timed_s(self.device, self._multiply)))

    def measure(self) -> dict[str, float]:
        """FLOP/s over one step, elements of results that differ from the first result, and that result's checksum."""
        self._differing.zero_()
        num_products, busy_s = 0, 0.0
        deadline = time.monotonic() + self._settings.burn_s
        while not num_products or time.monotonic() < deadline:
            busy_s += timed_s(self.device, self._multiply)
            num_products += self._chunk
        return {
            "burn_flops_per_s": 2 * self._settings.side**3 * num_products / busy_s,
            "mismatched_elements": float(self._differing.item()),
            "checksum": float(checksum(self._out)),
        }

    def _multiply(self) -> None:
        for _ in range(self._chunk):
            torch.mm(self._left, self._right, out=self._out)
            self._differing += (bits(self._out) != bits(self._reference)).sum()


def bits(values: torch.Tensor) -> torch.Tensor:
    """The same memory as integers: equal there means equal bit for bit, also for NaN and negative zero."""
    return values.view(_BITS[values.element_size()])


def checksum(values: torch.Tensor) -> int:
    """Sum of all elements' bits, each weighted by its place; exact, so the order of adding doesn't matter."""
    rows = bits(values).to(torch.int64)
    # Weights make two exchanged elements show. Products stay below 2^63 as sums wrap around in two's complement.
    weights = torch.arange(1, rows.shape[1] + 1, dtype=torch.int64, device=values.device)
    by_row = (rows * weights).sum(dim=1)
    return int((by_row * torch.arange(1, len(by_row) + 1, device=values.device)).sum().item()) % CHECKSUM_MODULUS
