"""The peak of turns whose engine sleeps in the trainer's process, by an allocator of the test's own."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
import torch

from pybench.worker.backends.turn.memory import NOTHING, Held, PeakMemory
from pybench.worker.backends.vllm.device_report import pool

GPU = torch.device("cuda", 0)
ENGINE = Held(29, 30)
"""What torch counts of the engine, awake or asleep."""


class Allocator:
    """Counts as torch does: what sleeps stays, and the peak lasts until it is reset."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.own = self.peak = 0
        reads: dict[str, Any] = {
            "memory_allocated": lambda _device: self.own + ENGINE.allocated,
            "memory_reserved": lambda _device: self.own + ENGINE.reserved,
            "max_memory_allocated": lambda _device: self.peak + ENGINE.allocated,
            "max_memory_reserved": lambda _device: self.peak + ENGINE.reserved,
            "reset_peak_memory_stats": lambda _device: self.take(0),
            "mem_get_info": lambda _device: (50, 80),
        }
        for name, read in reads.items():
            patch.setattr(torch.cuda, name, read)

    def take(self, amount: int, *, then: int | None = None) -> None:
        """Allocate ``amount`` more, then keep ``then``."""
        self.peak = self.own + amount
        self.own = self.own if then is None else then


def test_an_engine_asleep_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """29 of the engine and 2 to generate; 62 of the trainer alone; 15 of its weights with the engine's."""
    allocator = Allocator(monkeypatch)
    asleep = ENGINE
    peak = PeakMemory(GPU, lambda: asleep)
    found = []
    for slept, amount, then in [
        (ENGINE, 0, 0),  # it falls asleep for the first time
        (ENGINE, 62, 15),  # training; the weights stay
        (Held(20, 20), 0, 15),  # its weights wake
        (Held(20, 20), 1, 15),  # the handover
        (NOTHING, 0, 0),  # its cache wakes
        (NOTHING, 2, 0),  # generating
        (ENGINE, 0, 0),  # asleep: what was counted before it slept is no peak beside a trainer
    ]:
        allocator.take(amount, then=then)
        asleep = slept
        peak.end_phase()
        found.append([metric.value for metric in peak.metrics()])
    names = [metric.name for metric in peak.metrics()]
    assert names == ["peak_memory_bytes", "peak_reserved_memory_bytes", "device_memory_used_bytes"]
    assert found[0] == [0, 0, 30]
    assert found[1] == found[-1] == [62, 62, 30]


def test_an_engine_that_is_the_largest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its whole memory and what it takes to generate."""
    allocator = Allocator(monkeypatch)
    peak = PeakMemory(GPU, lambda: NOTHING)
    allocator.take(2)
    peak.end_phase()
    assert [metric.value for metric in peak.metrics()] == [31, 32, 30]


def test_what_torch_counts_of_vllms_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the snapshot of a tag's pool, as in vLLM 0.20.2; a tag without a pool has nothing."""
    segments = [{"allocated_size": 5, "total_size": 8}, {"allocated_size": 0, "total_size": 2}]
    pools = {"weights": (SimpleNamespace(snapshot=lambda: segments), None)}
    allocator = SimpleNamespace(get_instance=lambda: SimpleNamespace(allocator_and_pools=pools))
    fake = SimpleNamespace(CuMemAllocator=allocator)
    for name in ("vllm", "vllm.device_allocator", "vllm.device_allocator.cumem"):
        monkeypatch.setitem(sys.modules, name, fake)
    pool.cache_clear()
    assert (pool("weights"), pool("kv_cache")) == (Held(5, 10), NOTHING)
    pool.cache_clear()
    pools["weights"] = (SimpleNamespace(), None)
    assert pool("weights") is None
    pool.cache_clear()


def test_a_peak_that_is_not_known_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory in use on the GPU is reported, by the driver."""
    allocator = Allocator(monkeypatch)
    asleep: Held | None = NOTHING
    peak = PeakMemory(GPU, lambda: asleep)
    for known in (NOTHING, None, NOTHING):
        asleep = known
        allocator.take(2)
        peak.end_phase()
    assert [metric.name for metric in peak.metrics()] == ["device_memory_used_bytes"]


def test_on_a_cpu_it_is_the_process_that_counts() -> None:
    """Nothing sleeps there behind an allocator's back."""
    peak = PeakMemory(torch.device("cpu"), lambda: NOTHING)
    peak.end_phase()
    assert {metric.name for metric in peak.metrics()} <= {"peak_memory_bytes"}
