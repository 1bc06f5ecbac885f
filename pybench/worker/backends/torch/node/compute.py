"""Node workloads of one device: matrix products, sustained work, a training step, kernel launches."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch.nn import functional

from pybench.model.workloads.node import Burn, LaunchLatency, Matmul, TrainingStep
from pybench.worker.backend import UnsupportedError
from pybench.worker.backends.common_torch.process_group import TorchRanks, wait_for
from pybench.worker.backends.torch.node.measured import Measured, num_sets, random_matrix, timed_s

_STORED = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "tfloat32": torch.float32,
    "float32": torch.float32,
}
_NEEDS = {"tfloat32": ((8, 0), "float32"), "float8_e4m3fn": ((8, 9), "bfloat16")}
"""Least compute capability of a precision, and what to use below it. Ada and Hopper are the first with FP8 units."""


class MatmulBench(Measured[Matmul]):
    """Products on this rank's device, one after the other."""

    def __init__(self, settings: Matmul, ranks: TorchRanks) -> None:
        super().__init__(settings, ranks)
        capability = torch.cuda.get_device_capability(self.device) if self.device.type == "cuda" else (0, 0)
        (major, minor), other = _NEEDS.get(settings.precision, ((0, 0), ""))
        if capability < (major, minor):
            raise UnsupportedError(
                f"precision {settings.precision} needs a GPU of compute capability {major}.{minor} or higher; "
                f"use {other}"
            )
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
            scale = torch.ones((), device=device)
            return lambda: torch._scaled_mm(  # noqa: SLF001 - torch has no public name for it
                left, right, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16, use_fast_accum=True
            )
        out = torch.empty(settings.m, settings.n, dtype=dtype, device=device)
        return lambda: torch.mm(left, right, out=out)


# Time of work between two reads of the clock, which bounds how far a step overshoots.
_CHUNK_S = 0.1
# JSON readers keep integers whole up to here.
CHECKSUM_MODULUS = 2**53
_BITS = {2: torch.int16, 4: torch.int32}


class BurnBench(Measured[Burn]):
    """The same product again and again; every result is held against the first, bit for bit, on the device."""

    def __init__(self, settings: Burn, ranks: TorchRanks) -> None:
        super().__init__(settings, ranks)
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


_MLP_FACTOR = 4
_HEAD_SIZE = 128
_VOCABULARY = 8192
# Usual settings of Adam for models of this kind.
_LEARNING_RATE, _BETAS, _EPSILON = 1e-3, (0.9, 0.95), 1e-8


class TrainingStepBench(Measured[TrainingStep]):
    """The same updates again and again; the weights are compared with the first trained weights, on the device.

    Every operation adds in a fixed order, so equal devices compute equal bits. Fused attention does not: its backward
    pass adds in any order.
    """

    def __init__(self, settings: TrainingStep, ranks: TorchRanks) -> None:
        super().__init__(settings, ranks)
        # Float32 products must not fall to TF32, whose results are another kernel's.
        torch.set_float32_matmul_precision("highest")
        self._dtype = getattr(torch, settings.step_precision)
        width = settings.heads * _HEAD_SIZE
        inner = _MLP_FACTOR * width
        layer = ((width, 3 * width), (width, width), (width, inner), (inner, width))
        shapes = (*layer * settings.layers, (width, _VOCABULARY))
        # Drawn on the device: a GPU that draws other numbers than the others is faulty, too.
        self._initial = [self._drawn(*shape, number) / shape[0] ** 0.5 for number, shape in enumerate(shapes)]
        num_tokens = settings.sequences * settings.tokens
        inputs = self._drawn(num_tokens, width, len(shapes))
        self._inputs = inputs.view(settings.sequences, settings.tokens, width)
        self._targets = self._drawn(num_tokens, _VOCABULARY, len(shapes) + 1).argmax(dim=1)
        self._future = torch.ones(settings.tokens, settings.tokens, dtype=torch.bool, device=self.device).triu(1)
        self._weights: list[torch.Tensor] = []
        self._train()
        self._reference = self._weights

    def measure(self) -> dict[str, float]:
        """Tokens/s, elements of trained weights that differ from the first time, and the checksum of all weights."""
        settings = self._settings
        length_s = timed_s(self.device, self._train)
        pairs = zip(self._weights, self._reference, strict=True)
        differing = sum(int((bits(now) != bits(first)).sum().item()) for now, first in pairs)
        # The place of a weight counts, as the place of an element does.
        total = sum(place * checksum(weight) for place, weight in enumerate(self._weights, 1))
        return {
            "training_step_tokens_per_s": settings.sequences * settings.tokens * settings.updates / length_s,
            "mismatched_elements": float(differing),
            "checksum": float(total % CHECKSUM_MODULUS),
        }

    def _drawn(self, rows: int, columns: int, number: int) -> torch.Tensor:
        return random_matrix(rows, columns, torch.float32, self.device, self._settings.seed + number)

    def _train(self) -> None:
        """Make the updates of a step, from the initial weights on."""
        weights = [weight.clone().requires_grad_() for weight in self._initial]
        means = [torch.zeros_like(weight) for weight in self._initial]
        squares = [torch.zeros_like(weight) for weight in self._initial]
        for _ in range(self._settings.updates):
            gradients = torch.autograd.grad(self._loss(weights), weights)
            with torch.no_grad():
                for weight, gradient, mean, square in zip(weights, gradients, means, squares, strict=True):
                    mean.lerp_(gradient, 1 - _BETAS[0])
                    square.lerp_(gradient * gradient, 1 - _BETAS[1])
                    weight.addcdiv_(mean, square.sqrt().add_(_EPSILON), value=-_LEARNING_RATE)
        self._weights = [weight.detach() for weight in weights]

    def _loss(self, weights: list[torch.Tensor]) -> torch.Tensor:
        *layers, last = [weight.to(self._dtype) for weight in weights]
        stream = self._inputs.to(self._dtype)
        for mix, out, up, down in zip(*(layers[place::4] for place in range(4)), strict=True):
            stream = stream + _attention(_normal(stream) @ mix, self._future) @ out
            stream = stream + functional.gelu(_normal(stream) @ up) @ down
        return functional.cross_entropy((_normal(stream) @ last).flatten(0, 1).float(), self._targets)


def _normal(stream: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(stream, stream.shape[-1:])


def _attention(mixed: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
    """Causal attention by separate operations; ``mixed`` has queries, keys and values side by side."""
    queries, keys, values = mixed.view(*mixed.shape[:-1], 3, -1, _HEAD_SIZE).permute(2, 0, 3, 1, 4).unbind()
    scores = (queries @ keys.transpose(-1, -2)) * _HEAD_SIZE**-0.5
    shares = scores.masked_fill(future, float("-inf")).softmax(-1)
    mixed_values: torch.Tensor = (shares @ values).transpose(1, 2).flatten(-2)
    return mixed_values


# A launch that is waited for costs several that are not.
_ROUND_TRIPS_FRACTION = 0.1


class LaunchLatencyBench(Measured[LaunchLatency]):
    """Additions to one number. On a CPU, which launches nothing, what remains is torch's own way to its kernel."""

    def __init__(self, settings: LaunchLatency, ranks: TorchRanks) -> None:
        super().__init__(settings, ranks)
        self._number = torch.zeros(1, device=self.device)

    def measure(self) -> dict[str, float]:
        """Host seconds of one launch, and of one launch with the wait for its end."""
        wait_for(self.device)
        start_s = time.perf_counter()
        for _ in range(self._settings.launches):
            self._number.add_(1)
        launch_s = (time.perf_counter() - start_s) / self._settings.launches
        wait_for(self.device)
        num_trips = max(1, round(self._settings.launches * _ROUND_TRIPS_FRACTION))
        start_s = time.perf_counter()
        for _ in range(num_trips):
            self._number.add_(1)
            wait_for(self.device)
        return {"launch_s": launch_s, "round_trip_s": (time.perf_counter() - start_s) / num_trips}
