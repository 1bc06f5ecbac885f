"""A training step of a small transformer, whose updated weights must not differ by a bit."""

from __future__ import annotations

import torch
from torch.nn import functional

from pybench.model.workloads.node import TrainingStep
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.node.burn import CHECKSUM_MODULUS, bits, checksum
from pybench.worker.backends.torch.node.measured import Measured, random_matrix, timed_s

_MLP_FACTOR = 4
_HEAD_SIZE = 128
_VOCABULARY = 8192
# Of Adam, as models of this kind are trained.
_LEARNING_RATE, _BETAS, _EPSILON = 1e-3, (0.9, 0.95), 1e-8


class TrainingStepBench(Measured):
    """The same updates again and again; the weights are compared with those of the first time, on the device.

    Every operation adds in a fixed order, so equal devices compute equal bits. Fused attention does not: its backward
    pass adds in any order.
    """

    def __init__(self, settings: TrainingStep, ranks: TorchRanks) -> None:
        super().__init__(ranks)
        self._settings = settings
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
