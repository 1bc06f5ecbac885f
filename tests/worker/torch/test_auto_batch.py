"""The largest batch that fits, with memory that ends where the test says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
import torch

from pybench.model.workloads.train import Train
from pybench.worker.backend import UnsupportedError
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.train import training as train_step
from pybench.worker.backends.torch.train.learner import Task
from pybench.worker.backends.torch.train.training import find_batch_size, largest_fitting
from tests.worker.torch.torchrun import torchrun

ALONE = TorchRanks(0, 1, torch.device("cpu"))
SETTINGS = Train(backend="torch", model="m", batch_size_per_gpu="auto", sequence_tokens=4)

pytestmark = pytest.mark.usefixtures("frozen_libraries")


@pytest.mark.parametrize("most", [1, 2, 3, 6, 7, 8, 63, 64, 100])
def test_doubling_then_bisection(most: int) -> None:
    """The exact limit, with about twice its logarithm of tries."""
    tried: list[int] = []

    def fits(size: int) -> bool:
        tried.append(size)
        return size <= most

    assert largest_fitting(fits, range(1, 101)) == most
    assert len(tried) == len(set(tried)) <= 2 * most.bit_length() + 2


@pytest.mark.parametrize("most", [1, 2, 5, 11, 12, 24])
def test_only_sizes_that_hold_the_effective_batch(most: int) -> None:
    """Divisors of a rank's part of 24 samples."""
    settings = Train(
        backend="torch",
        model="m",
        global_batch_size=48,
        batch_size_per_gpu="auto",
        grad_accum="auto",
        data_parallel=2,
        sequence_tokens=4,
    )
    sizes = settings.sizes_to_try
    assert sizes == [1, 2, 3, 4, 6, 8, 12, 24]
    assert largest_fitting(lambda size: size <= most, sizes) == max(size for size in sizes if size <= most)


def test_nothing_fits() -> None:
    """Said in the suite's own words."""
    with pytest.raises(UnsupportedError, match="batch_size_per_gpu = 'auto': not even 1 fits into memory"):
        largest_fitting(lambda _: False, [1, 2])


def test_running_out_of_memory_is_survived() -> None:
    """Each try builds anew; the model of one that failed is let go."""
    alive: list[int] = []

    class Held:
        def __init__(self, size: int) -> None:
            self.size = size
            alive.append(size)

        def __del__(self) -> None:
            alive.remove(self.size)

    def attempt(task: Task) -> None:
        held = Held(task.settings.micro_batch_size)
        if held.size > 5:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 8.00 GiB")

    assert find_batch_size(SETTINGS, {}, ALONE, attempt) == 5
    assert alive == []


@pytest.mark.parametrize(
    ("cached", "found"),
    [
        pytest.param({1: "abb", 2: "abb", 3: "!"}, 2, id="no room for the first step"),
        pytest.param({1: "abb", 2: "abb", 3: "a!"}, 2, id="no room beside the states"),
        pytest.param({1: "abb", 2: "abb", 3: "ab!"}, 2, id="free memory in pieces"),
        pytest.param({1: "abb", 2: "abcdd", 3: "abc!"}, 2, id="settled in the fifth step"),
        pytest.param({1: "abb", 2: "abb", 3: "ababababab"}, 2, id="never settled"),
        pytest.param({1: "abb", 2: "abb", 3: "aab!"}, 2, id="a first and second alike are not yet settled"),
    ],
)
def test_a_batch_fits_that_can_be_trained_on_without_end(
    cached: dict[int, str], found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A letter is the allocator's state after a step, ! is out of memory; no further step runs."""
    held = ""

    class Attempt:
        def __init__(self, size: int) -> None:
            self.cached = cached.get(size, "!")

        def step(self, index: int) -> None:
            nonlocal held
            held = self.cached[index]
            if held == "!":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 7.83 GiB")

    @contextmanager
    def trainer(task: Task) -> Iterator[Attempt]:
        made.append(task.settings.micro_batch_size)
        yield Attempt(made[-1])

    made: list[int] = []
    monkeypatch.setattr(train_step, "trainer", trainer)
    monkeypatch.setattr(train_step, "cached_memory", lambda _device: held)
    with train_step.training(SETTINGS, {}, ALONE):
        assert made[-1] == found


@pytest.mark.parametrize("error", [RuntimeError("shape mismatch"), ValueError("bad")])
def test_other_errors_are_not_taken_for_it(error: Exception) -> None:
    """They would come at any size."""

    def attempt(_task: Any) -> None:
        raise error

    with pytest.raises(type(error), match=str(error)):
        find_batch_size(SETTINGS, {}, ALONE, attempt)


def test_the_rank_with_the_least_memory_decides(warm_python: Path, tmp_path: Path) -> None:
    """All ranks go on with the same size: they vote after each try."""
    torchrun(warm_python, 2, "votes.py", str(tmp_path / "found"))
    assert [(tmp_path / f"found.{rank}").read_text() for rank in (0, 1)] == ["5", "5"]


def test_the_rank_that_settles_last_ends_a_try(warm_python: Path, tmp_path: Path) -> None:
    """A rank that made fewer steps would leave the others in a collective."""
    torchrun(warm_python, 2, "settling.py", str(tmp_path / "steps"))
    assert [(tmp_path / f"steps.{rank}").read_text() for rank in (0, 1)] == ["abbbb", "abcdd"]
