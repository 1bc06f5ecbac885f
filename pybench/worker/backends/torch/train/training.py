"""The training workload: one step for every strategy, the search for a batch size, and control steps."""

from __future__ import annotations

import gc
import math
import statistics
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from pybench.model.wire import Metric, Work
from pybench.model.workloads.settings import AUTO
from pybench.model.workloads.train import Train
from pybench.model.workloads.train_rules import STRATEGIES
from pybench.worker.backend import StepOutcome, UnsupportedError, cause_of
from pybench.worker.backends.common_torch.memory import memory_metrics
from pybench.worker.backends.common_torch.process_group import TorchRanks, wait_for
from pybench.worker.backends.torch.train.data import Source
from pybench.worker.backends.torch.train.learner import Learner, Task, WholeModel, learner_of

# A rank that runs out of memory alone leaves the others in a collective; it gives them this long to fail as well.
_PATIENCE = timedelta(minutes=2)


def find_batch_size(
    settings: Train, architecture: dict[str, Any], ranks: TorchRanks, attempt: Callable[[Task], None]
) -> int:
    """The most samples for each data-parallel rank with which ``attempt`` fits on every rank."""
    votes = distributed.new_group(backend="gloo", timeout=_PATIENCE) if ranks.world_size > 1 else None

    def fits(size: int) -> bool:
        sized = replace(settings, batch_size_per_gpu=size)
        failure = _out_of_memory(lambda: attempt(Task(sized, architecture, ranks)))
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        failed = torch.tensor([int(failure is not None)])
        if votes is not None:
            try:
                distributed.all_reduce(failed, group=votes)
            except RuntimeError:  # the others never came to vote
                if failure is not None:
                    raise failure from None
                raise
        return not failed.item()

    return largest_fitting(fits, settings.sizes_to_try)


def largest_fitting(fits: Callable[[int], bool], sizes: Iterable[int]) -> int:
    """Doubling until one is too large, then bisection between the last that fits and that one.

    ``fits`` must hold up to some size and not above it. Raises :class:`UnsupportedError` when the smallest is too
    large.
    """
    ascending = list(sizes)
    good, position = -1, 0
    while position < len(ascending) and fits(ascending[position]):
        good = position
        position = next((n for n, size in enumerate(ascending) if size >= 2 * ascending[good]), len(ascending))
    if good < 0:
        raise UnsupportedError(f"batch_size_per_gpu = {AUTO!r}: not even {ascending[0]} fits into memory")
    between = ascending[good + 1 : position]
    return ascending[good + bisect_left(between, True, key=lambda size: not fits(size))]


def _out_of_memory(work: Callable[[], object]) -> BaseException | None:
    """The error if ``work`` ran out of memory, else ``None``."""
    try:
        work()
    except (RuntimeError, MemoryError) as error:
        if cause_of(error) != "out_of_memory":
            raise
        failure = error.with_traceback(None)  # frames of this error and of its causes would keep the model
        failure.__context__ = failure.__cause__ = None
        return failure
    return None


def control_metrics(
    train: Callable[[], object], silence: AbstractContextManager[None], ranks: TorchRanks, num_steps: int
) -> tuple[Metric, ...]:
    """``num_steps`` of either kind; the ordinary ones first, since weights that stay gathered can't be let go.

    It needs at least two ranks: a lone rank communicates with no other.
    Empty where a rank has no memory for silent steps, which hold all weights and gradients: the attempt is measured.
    Ranks agree on that before each step.
    """
    ordinary_s = statistics.median(_timed_s(train, ranks) for _ in range(num_steps))
    lengths_s: list[float] = []
    with ExitStack() as silenced:
        failure = _out_of_memory(lambda: silenced.enter_context(silence))
        for _ in range(1 + num_steps):  # the first may still gather
            if not ranks.unanimous(failure is None):
                return ()
            failure = _out_of_memory(lambda: lengths_s.append(_timed_s(train, ranks)))
    if not ranks.unanimous(failure is None):
        return ()
    *others_s, slowest_s = sorted(_on_all_ranks(statistics.median(lengths_s[1:]), ranks))
    exposed = max(0.0, 1 - slowest_s / ordinary_s)
    gap = slowest_s / statistics.median(others_s) - 1
    return (
        Metric(name="exposed_communication_fraction", value=exposed, unit=""),
        Metric(name="straggler_gap_fraction", value=gap, unit=""),
    )


def _timed_s(train: Callable[[], object], ranks: TorchRanks) -> float:
    """This rank's own time, from a common start to its device's end."""
    ranks.barrier()
    start_ns = time.monotonic_ns()
    train()
    wait_for(ranks.device)
    return (time.monotonic_ns() - start_ns) / 1e9


def _on_all_ranks(value: float, ranks: TorchRanks) -> list[float]:
    local = torch.tensor([value], dtype=torch.float64, device=ranks.device)
    values = [torch.empty_like(local) for _ in range(ranks.world_size)]
    distributed.all_gather(values, local)
    return [each.item() for each in values]


_LEAST_STEPS_TRIED, _MOST_STEPS_TRIED = 3, 10
"""Steps of each batch size: on an H100, sizes settled in the third to fifth step."""


@dataclass
class Training:
    """A learner and this rank's part of the batch."""

    task: Task
    learner: Learner
    source: Source

    def step(self, index: int) -> StepOutcome:
        """Train on the batch. The loss is the mean over all ranks' tokens, before the update.

        Raises ``FloatingPointError`` when it is not finite: nothing measured from there on means anything.
        """
        share = self.train()
        if self.task.ranks.world_size > 1:
            distributed.all_reduce(share)
        loss = share.item() / self.source.num_labels
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss} at step {index}: training diverged")
        work = Work(samples=self.task.settings.effective_batch_size)
        return StepOutcome(work=work, loss=loss, values=self.source.values(), late_values=self.learner.values)

    def train(self) -> torch.Tensor:
        """All passes and the update; returns this rank's share of the summed loss."""
        share = torch.zeros((), device=self.task.ranks.device)
        scale = self.learner.averaged_over / self.source.num_labels
        for number, batch in enumerate(self.source.passes(), 1):
            share += self.learner.backward(batch, scale, last=number == self.task.settings.num_passes)
        self.learner.update()
        return share

    def metrics(self) -> tuple[Metric, ...]:
        """Peak memory, batch size, metrics of the strategy and of the control steps."""
        settings, ranks = self.task.settings, self.task.ranks
        metrics = [
            *memory_metrics(ranks.device),
            Metric(name="batch_size_per_gpu", value=settings.micro_batch_size, unit="samples"),
            trained_parameters(self.task, self.learner),
            *self.learner.metrics(),
        ]
        if settings.cpu_offload or settings.offload_optimizer:
            metrics.append(Metric(name="host_update_threads", value=torch.get_num_threads(), unit=""))
        if isinstance(self.learner, WholeModel):  # others have no option of evaluation, nor control steps
            if settings.evaluation_every_steps is not None:
                from pybench.worker.backends.torch.train.evaluation import Evaluation

                metrics += Evaluation(self.task, self.learner).metrics()
            if settings.has_control_steps and settings.control_steps:
                metrics += control_metrics(self.train, self.learner.silence(), ranks, settings.control_steps)
        return tuple(metrics)


def training(settings: Train, architecture: dict[str, Any], ranks: TorchRanks) -> AbstractContextManager[Training]:
    """Build the model on every rank and share the work by the settings' strategy."""
    if settings.finds_batch_size:
        resident = replace(settings, loader_workers=None)
        settings = replace(settings, batch_size_per_gpu=find_batch_size(resident, architecture, ranks, _try))
    return trainer(Task(settings, architecture, ranks))


@contextmanager
def trainer(task: Task) -> Iterator[Training]:
    """A learner by the task's strategy, with its samples."""
    learner = learner_of(task)
    with closing(Source(task, learner.portion)) as samples:
        yield Training(task, learner, samples)


def cached_memory(device: torch.device) -> tuple[int, int]:
    """Bytes and segments that the allocator holds of a GPU; 0 on the CPU, whose memory it does not keep."""
    if device.type == "cpu":
        return 0, 0
    stats = torch.cuda.memory_stats(device)
    return stats["reserved_bytes.all.current"], stats["segment.all.current"]


def _try(task: Task) -> None:
    """Steps until one leaves the allocator with the memory that the step before it left: later ones repeat it.

    The first makes the optimizer's states, the second needs room beside them. From there on the allocator may return
    cached memory to the driver, as an H100 did in each step of a size that trains at full speed. It may also find free
    memory in pieces too small, as in the third step of a larger size there. Raises ``torch.OutOfMemoryError`` also
    where no step repeats another.
    """
    held = None
    with trainer(task) as attempt:
        for index in range(_MOST_STEPS_TRIED):
            attempt.step(index)
            before, held = held, cached_memory(task.ranks.device)
            if index >= _LEAST_STEPS_TRIED - 1 and task.ranks.unanimous(held == before):
                return
    raise torch.OutOfMemoryError(f"out of memory: after {_MOST_STEPS_TRIED} steps the allocator still seeks room")


# With ZeRO's third stage a rank's parameters have no elements; this attribute is their number.
_SPLIT_BY_ZERO = "ds_numel"


def trained_parameters(task: Task, learner: Learner) -> Metric:
    """Trained parameters of the whole model; split ones count once. All ranks call it, and stages are summed."""
    # A DTensor counts the numbers of all ranks.
    trained = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    count = sum(int(getattr(parameter, _SPLIT_BY_ZERO, parameter.numel())) for parameter in trained)
    if STRATEGIES[task.settings.strategy].has_stages and task.ranks.world_size > 1:
        total = torch.tensor(count, device=task.ranks.device)
        distributed.all_reduce(total)
        count = int(total) // task.settings.data_parallel
    return Metric(name="trained_parameters", value=count, unit="")
