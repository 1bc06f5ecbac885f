"""The loss over a vocabulary that ranks share, against that of whole logits."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("transformers")
import torch
from torch import distributed
from torch.nn import functional

from pybench.worker.backends.common_torch.samples import IGNORED
from pybench.worker.backends.torch.train.strategies.tensor_parallel import split_loss

TOKENS, VOCABULARY = 9, 13
PARTS = (5, 5, 3)  # as a weight is cut that three ranks don't divide


class Threads:
    """Ranks as threads of this process, whose all-reduces wait for each other."""

    def __init__(self, num_ranks: int) -> None:
        self._barrier = threading.Barrier(num_ranks)
        self._given: list[torch.Tensor] = []
        self._lock = threading.Lock()

    def all_reduce(self, tensor: torch.Tensor, op: Any = distributed.ReduceOp.SUM, group: Any = None) -> None:
        """In place, of all threads' tensors."""
        assert group is self
        with self._lock:
            self._given.append(tensor.clone())
        self._barrier.wait()
        stacked = torch.stack(self._given)
        found = stacked.amax(0) if op == distributed.ReduceOp.MAX else stacked.sum(0)
        if self._barrier.wait() == 0:
            self._given.clear()
        self._barrier.wait()
        tensor.copy_(found)


@pytest.mark.parametrize(("dtype", "off"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
def test_ranks_find_loss_and_gradients_of_whole_logits(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, off: float
) -> None:
    """Labels in each part, the first and the last token, and two positions without one; logits far from 0."""
    generator = torch.Generator().manual_seed(1)
    whole = (20 * torch.randn(TOKENS, VOCABULARY, generator=generator) + 300).to(dtype)
    labels = torch.tensor([0, 4, 5, 9, 10, VOCABULARY - 1, IGNORED, 7, IGNORED])
    threads = Threads(len(PARTS))
    monkeypatch.setattr(distributed, "all_reduce", threads.all_reduce)

    def rank(first: int, size: int) -> tuple[float, torch.Tensor]:
        own = whole[:, first : first + size].clone().requires_grad_()
        loss = split_loss(own, labels, first, threads)  # type: ignore[arg-type]
        (loss * 0.5).backward()  # type: ignore[no-untyped-call]
        assert own.grad is not None
        return loss.item(), own.grad

    with ThreadPoolExecutor(len(PARTS)) as pool:
        found = list(pool.map(rank, (0, 5, 10), PARTS))
    expected = whole.clone().requires_grad_()
    loss = functional.cross_entropy(expected.float(), labels, ignore_index=IGNORED, reduction="sum")
    (loss * 0.5).backward()  # type: ignore[no-untyped-call]
    assert loss.item() > 100
    assert [each for each, _ in found] == pytest.approx([loss.item()] * len(PARTS), rel=1e-6)
    torch.testing.assert_close(torch.cat([own for _, own in found], 1), expected.grad, rtol=off, atol=1e-6)
