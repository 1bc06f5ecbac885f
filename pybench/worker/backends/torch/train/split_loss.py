"""Cross-entropy over a vocabulary that ranks share (Megatron-LM, arXiv:1909.08053, section 3): no rank has all logits.

The whole logits of a long batch would have to be gathered, and need more memory than a rank's part of the model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed
from torch.distributed import ProcessGroup

from pybench.worker.backends.torch.tensor_parallel import own_places
from pybench.worker.backends.torch.train.loss import IGNORED


def split_loss(logits: torch.Tensor, labels: torch.Tensor, first: int, group: ProcessGroup) -> torch.Tensor:
    """Sum over all labels, in nats and float32, the same on each rank of ``group``.

    ``logits`` are this rank's, of shape (tokens, part of the vocabulary), which starts at token ``first``; ``labels``
    are of shape (tokens,), :data:`~pybench.worker.backends.torch.train.loss.IGNORED` where there is none.
    """
    found: torch.Tensor = _SplitLoss.apply(logits, labels, first, group)  # type: ignore[no-untyped-call]
    return found


class _SplitLoss(torch.autograd.Function):
    """Six bytes for each of this rank's logits of two: themselves and float32, then that and the gradient."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor, first: int, group: ProcessGroup) -> torch.Tensor:
        largest = logits.amax(-1).float()
        distributed.all_reduce(largest, distributed.ReduceOp.MAX, group=group)
        shifted = logits - largest[:, None]
        places, here = own_places(labels, first, logits.shape[-1])
        places = places[:, None]
        picked = shifted.gather(-1, places)[:, 0] * here
        probabilities = shifted.exp_()
        sums = torch.stack([probabilities.sum(-1), picked])
        distributed.all_reduce(sums, group=group)
        probabilities /= sums[0, :, None]
        labelled = labels != IGNORED
        ctx.save_for_backward(probabilities, places, here, labelled)
        ctx.dtype = logits.dtype
        return ((sums[0].log() - sums[1]) * labelled).sum()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        probabilities, places, here, labelled = ctx.saved_tensors
        probabilities.scatter_add_(-1, places, -here[:, None].to(probabilities.dtype))
        probabilities *= (gradient * labelled)[:, None]
        return probabilities.to(ctx.dtype), None, None, None
