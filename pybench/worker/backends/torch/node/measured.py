"""Base class of all workloads of a node, and the time that a device works."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from pybench.model.wire import Metric, Work
from pybench.model.workloads.settings import NodeSettings, WorkloadName
from pybench.worker.backend import StepOutcome
from pybench.worker.backends.common_torch.memory import memory_metrics
from pybench.worker.backends.common_torch.process_group import RoundClock, TorchRanks

_MODULES: dict[WorkloadName, str] = {
    **dict.fromkeys(("matmul", "burn", "training_step", "launch_latency"), "compute"),
    **dict.fromkeys(("memory_bandwidth", "host_device_copy", "peer_copy"), "copies"),
    "collective": "collective",
}
"""The module here with a workload's class: ``MatmulBench`` for settings of class ``Matmul``."""


def node_workload(settings: NodeSettings, ranks: TorchRanks) -> AbstractContextManager[Measured[Any]]:
    """Fill the memory that the workload of these settings works on."""
    module = importlib.import_module(f"{__package__}.{_MODULES[settings.workload]}")
    measured: Measured[Any] = getattr(module, f"{type(settings).__name__}Bench")(settings, ranks)
    return nullcontext(measured)


_L3 = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
# Where the kernel does not report it: the size in one complex of recent server CPUs.
_USUAL_L3_BYTES = 32 * 2**20
_BYTES_PER_KIB = 1024
# Twice the cache, so that what a rotation comes back to is gone.
_CACHES = 2
_WORD_BYTES = 8


def cache_bytes(device: torch.device) -> int:
    """Size of the last cache before the device's memory."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    text = _L3.read_text().strip() if _L3.exists() else ""
    return int(text[:-1]) * _BYTES_PER_KIB if text.endswith("K") else _USUAL_L3_BYTES


def num_sets(device: torch.device, set_bytes: int) -> int:
    """Sets of operands to rotate through: at least two, together larger than twice the cache."""
    return max(2, _CACHES * cache_bytes(device) // set_bytes + 1)


def random_matrix(rows: int, columns: int, dtype: torch.dtype, device: torch.device, seed: int) -> torch.Tensor:
    """Normal values, never zeros: how many bits toggle decides the power, and so the clock.

    Drawn on ``device``, since a CPU takes seconds; devices of two kinds draw different values from one seed.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randn(rows, columns, generator=generator, device=device).to(dtype)


def random_bytes(count: int, device: torch.device, seed: int) -> torch.Tensor:
    """``count`` bytes, each value as likely as any other: moving a constant draws fewer watts than moving data."""
    generator = torch.Generator(device=device).manual_seed(seed)
    words = torch.empty(-(-count // _WORD_BYTES), dtype=torch.int64, device=device)
    return words.random_(-(2**63), None, generator=generator).view(torch.uint8)[:count]


AnySettings = TypeVar("AnySettings", bound=NodeSettings)


class Measured(Generic[AnySettings]):
    """A workload that measures itself: every step reports what :meth:`measure` found on this rank."""

    def __init__(self, settings: AnySettings, ranks: TorchRanks) -> None:
        self._settings = settings
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


_S_PER_NS = 1e-9
# More than a host takes to queue one operation (30 us seen for a collective of torch), at the clock of today's GPUs.
_HOLD_CYCLES = 200_000


def timed_s(device: torch.device, work: Callable[[], object]) -> float:
    """Seconds from the first to the last thing that ``work`` gives the device: CUDA events, on a CPU the host's clock.

    Returns after the device is done.
    """
    clock = RoundClock(device)
    clock.mark()
    work()
    clock.mark()
    start_ns, end_ns = clock.read()
    return (end_ns - start_ns) * _S_PER_NS


def hold(device: torch.device, num_operations: int) -> None:
    """Delay the next kernels on the device until the host has queued ``num_operations``.

    Where an operation takes the device less time than the host, the device would wait for the host between them. A CPU
    has no queue.
    """
    if device.type == "cuda":
        torch.cuda._sleep(num_operations * _HOLD_CYCLES)  # type: ignore[no-untyped-call]  # noqa: SLF001
