"""The training workload: one step for every strategy, the search for a batch size, and control steps."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from pybench.model.wire import Metric, Work
from pybench.model.workloads.settings import AUTO
from pybench.model.workloads.train import Train
from pybench.model.workloads.train_strategies import STRATEGIES
from pybench.worker.backend import StepOutcome, UnsupportedError, cause_of
from pybench.worker.backends.common_torch.memory import cached_memory, memory_metrics
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.train.data import Source, source
from pybench.worker.backends.torch.train.learner import Learner, Task, WholeModel, learner_of

# A rank that runs out of memory alone leaves the others in a collective; it gives them this long to fail as well.
_PATIENCE = timedelta(minutes=2)


def find_batch_size(
    settings: Train, architecture: dict[str, Any], ranks: TorchRanks, attempt: Callable[[Task], None]
) -> int:
    """The most samples for each data-parallel rank with which ``attempt`` fits on every rank."""
    votes = distributed.new_group(backend="gloo", timeout=_PATIENCE) if ranks.world_size > 1 else None

    def fits(size: int) -> bool:
        failure = _out_of_memory(lambda: attempt(Task(replace(settings, batch_size_per_gpu=size), architecture, ranks)))
        return _all_agree(failure, votes)

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
    bad = position
    while bad - good > 1:
        middle = (good + bad) // 2
        if fits(ascending[middle]):
            good = middle
        else:
            bad = middle
    if good < 0:
        raise UnsupportedError(f"batch_size_per_gpu = {AUTO!r}: not even {ascending[0]} fits into memory")
    return ascending[good]


def _out_of_memory(attempt: Callable[[], None]) -> BaseException | None:
    """The error if ``attempt`` ran out of memory, else ``None``; its memory is free again on return."""
    failure = None
    try:
        attempt()
    except (RuntimeError, MemoryError) as error:
        if cause_of(error) != "out_of_memory":
            raise
        failure = error.with_traceback(None)  # frames of this error and of its causes would keep the model
        failure.__context__ = failure.__cause__ = None
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return failure


def _all_agree(failure: BaseException | None, votes: distributed.ProcessGroup | None) -> bool:
    """Whether no rank failed. Raises ``failure`` when the others never come to vote."""
    if votes is None:
        return failure is None
    failed = torch.tensor([int(failure is not None)])
    try:
        distributed.all_reduce(failed, group=votes)
    except RuntimeError:
        if failure is not None:
            raise failure from None
        raise
    return not failed.item()


def control_metrics(
    train: Callable[[], object], silence: AbstractContextManager[None], ranks: TorchRanks, num_steps: int
) -> tuple[Metric, ...]:
    """``num_steps`` of either kind; the ordinary ones first, since weights that stay gathered can't be let go.

    It needs at least two ranks: a lone rank communicates with no other.
    Empty where a rank has no memory for silent steps, which hold all weights and gradients: the attempt is measured.
    """
    ordinary_s = statistics.median(_timed_s(train, ranks) for _ in range(num_steps))
    silent_s = _silent_s(train, silence, ranks, num_steps)
    if silent_s is None:
        return ()
    *others_s, slowest_s = sorted(_on_all_ranks(silent_s, ranks))
    exposed = max(0.0, 1 - slowest_s / ordinary_s)
    gap = slowest_s / statistics.median(others_s) - 1
    return (
        Metric(name="exposed_communication_fraction", value=exposed, unit=""),
        Metric(name="straggler_gap_fraction", value=gap, unit=""),
    )


def _silent_s(
    train: Callable[[], object], silence: AbstractContextManager[None], ranks: TorchRanks, num_steps: int
) -> float | None:
    """This rank's median; ``None`` on all ranks where one is out of memory. They agree on that before each step."""
    lengths_s = []
    with ExitStack() as silenced:
        has_memory = _fits(lambda: silenced.enter_context(silence))
        for _ in range(1 + num_steps):  # the first may still gather
            if not ranks.unanimous(has_memory):
                return None
            has_memory = _fits(lambda: lengths_s.append(_timed_s(train, ranks)))
    return statistics.median(lengths_s[1:]) if ranks.unanimous(has_memory) else None


def _fits(work: Callable[[], object]) -> bool:
    try:
        work()
    except (RuntimeError, MemoryError) as error:
        if cause_of(error) != "out_of_memory":
            raise
        return False
    return True


def _timed_s(train: Callable[[], object], ranks: TorchRanks) -> float:
    """This rank's own time, from a common start to its device's end."""
    ranks.barrier()
    start_ns = time.monotonic_ns()
    train()
    if ranks.device.type == "cuda":
        torch.cuda.synchronize(ranks.device)
    return (time.monotonic_ns() - start_ns) / 1e9


def _on_all_ranks(value: float, ranks: TorchRanks) -> list[float]:
    own = torch.tensor([value], dtype=torch.float64, device=ranks.device)
    values = [torch.empty_like(own) for _ in range(ranks.world_size)]
    distributed.all_gather(values, own)
    return [one.item() for one in values]


_LEAST_STEPS_TRIED, _MOST_STEPS_TRIED = 3, 10
"""Steps of each batch size: on an H100, sizes settled in the third to fifth step."""


class Training:
    """A learner and this rank's part of the batch."""

    def __init__(self, task: Task, learner: Learner, samples: Source) -> None:
        self.learner = learner
        self._task = task
        self._source = samples
        self._scale = learner.averaged_over / samples.num_labels

    def step(self, index: int) -> StepOutcome:
        """Train on the batch. The loss is the mean over all ranks' tokens, before the update.

        Raises ``FloatingPointError`` when it is not finite: nothing measured from there on means anything.
        """
        share = self.train()
        if self._task.ranks.world_size > 1:
            distributed.all_reduce(share)
        loss = share.item() / self._source.num_labels
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss} at step {index}: training diverged")
        work = Work(samples=self._task.settings.effective_batch_size)
        return StepOutcome(work=work, loss=loss, values=self._source.values(), late_values=self.learner.values)

    def train(self) -> torch.Tensor:
        """All passes and the update; returns this rank's share of the summed loss."""
        share = torch.zeros((), device=self._task.ranks.device)
        for number, batch in enumerate(self._source.passes(), 1):
            share += self.learner.backward(batch, self._scale, last=number == self._task.settings.num_passes)
        self.learner.update()
        return share

    def metrics(self) -> tuple[Metric, ...]:
        """Peak memory, batch size, metrics of the strategy and of the control steps."""
        memory = memory_metrics(self._task.ranks.device)
        size = self._task.settings.micro_batch_size
        batch_size = Metric(name="batch_size_per_gpu", value=size, unit="samples")
        threads = Metric(name="host_update_threads", value=torch.get_num_threads(), unit="")
        of_host = (threads,) if self._task.settings.updates_on_host else ()
        trained = trained_parameters(self._task, self.learner)
        return (*memory, batch_size, trained, *self.learner.metrics(), *of_host, *self._evaluation(), *self._control())

    def _evaluation(self) -> tuple[Metric, ...]:
        if self._task.settings.evaluation_every_steps is None:
            return ()
        from pybench.worker.backends.torch.train.evaluation import Evaluation

        return Evaluation(self._task, self._whole_model()).metrics()

    def _control(self) -> tuple[Metric, ...]:
        settings = self._task.settings
        num_steps = settings.control_steps if settings.has_control_steps else None
        if not num_steps:
            return ()
        return control_metrics(self.train, self._whole_model().silence(), self._task.ranks, num_steps)

    def _whole_model(self) -> WholeModel:
        assert isinstance(self.learner, WholeModel), "others have no option of evaluation, nor control steps"
        return self.learner


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
    with source(task, learner.portion) as samples:
        yield Training(task, learner, samples)


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
    # A DTensor's number is that of all ranks.
    trained = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    count = sum(int(getattr(parameter, _SPLIT_BY_ZERO, parameter.numel())) for parameter in trained)
    if STRATEGIES[task.settings.strategy].has_stages and task.ranks.world_size > 1:
        total = torch.tensor(count, device=task.ranks.device)
        distributed.all_reduce(total)
        count = int(total) // task.settings.data_parallel
    return Metric(name="trained_parameters", value=count, unit="")
