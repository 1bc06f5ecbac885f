"""What all workloads of a node have in common."""

from __future__ import annotations

import torch

from pybench.model.wire import Metric, Work
from pybench.worker.backend import StepOutcome
from pybench.worker.backends.common_torch.memory import memory_metrics
from pybench.worker.backends.common_torch.process_group import TorchRanks


class Measured:
    """A workload that measures itself: every step reports what :meth:`measure` found on this rank."""

    def __init__(self, ranks: TorchRanks) -> None:
        self.ranks = ranks
        self.device: torch.device = ranks.device

    def measure(self) -> dict[str, float]:
        """Do one step's work; values of this rank by name."""
        raise NotImplementedError

    def step(self, index: int) -> StepOutcome:
        """Every step does the same."""
        del index
        return StepOutcome(work=Work(), values=self.measure())

    def metrics(self) -> tuple[Metric, ...]:
        """Peak memory."""
        return memory_metrics(self.device)
