"""Matrix products, each with other operands than the last."""

from __future__ import annotations

from collections.abc import Callable

import torch

from pybench.model.workloads.node import Matmul
from pybench.worker.backend import UnsupportedError
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.node.measured import Measured, num_sets, random_matrix, timed_s

_STORED = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "tfloat32": torch.float32,
    "float32": torch.float32,
}
# Ada and Hopper are the first with FP8 units.
_FP8_CAPABILITY = (8, 9)
_TF32_CAPABILITY = (8, 0)


class MatmulBench(Measured):
    """Products on this rank's device, one after the other."""

    def __init__(self, settings: Matmul, ranks: TorchRanks) -> None:
        super().__init__(ranks)
        _check(settings, self.device)
        self._settings = settings
        torch.set_float32_matmul_precision("high" if settings.precision == "tfloat32" else "highest")
        dtype = _STORED[settings.precision]
        size = (settings.m + settings.n) * settings.k * dtype.itemsize
        self._products = [self._product(number, dtype) for number in range(num_sets(self.device, size))]
        self._next = 0

    def measure(self) -> dict[str, float]:
        """FLOP/s of a step's products: 2 m n k each (a multiplication and an addition)."""
        settings = self._settings
        length_s = timed_s(self.device, self._multiply)
        return {"matmul_flops_per_s": 2 * settings.m * settings.n * settings.k * settings.products / length_s}

    def _multiply(self) -> None:
        for _ in range(self._settings.products):
            self._products[self._next]()
            self._next = (self._next + 1) % len(self._products)

    def _product(self, number: int, dtype: torch.dtype) -> Callable[[], object]:
        settings, device = self._settings, self.device
        left = random_matrix(settings.m, settings.k, dtype, device, settings.seed + 2 * number)
        # Rows of the transpose: FP8 units read the right operand by columns.
        right = random_matrix(settings.n, settings.k, dtype, device, settings.seed + 2 * number + 1).t()
        if dtype == torch.float8_e4m3fn:
            one = torch.ones((), device=device)
            return lambda: torch._scaled_mm(  # noqa: SLF001 - torch has no public name for it
                left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
            )
        out = torch.empty(settings.m, settings.n, dtype=dtype, device=device)
        return lambda: torch.mm(left, right, out=out)


def _check(settings: Matmul, device: torch.device) -> None:
    """Raise :class:`UnsupportedError` for a type that this device can't multiply."""
    capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else None
    if settings.precision == "tfloat32" and (capability is None or capability < _TF32_CAPABILITY):
        raise UnsupportedError("precision tfloat32 needs a GPU of compute capability 8.0 or higher; use float32")
    if settings.precision == "float8_e4m3fn" and (capability is None or capability < _FP8_CAPABILITY):
        raise UnsupportedError("precision float8_e4m3fn needs a GPU of compute capability 8.9 or higher; use bfloat16")
