"""The way of the trainer's weights to the engine: from memory to memory, or by a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from pybench.model.workloads.host_device_copy import HostDeviceCopy
from pybench.model.workloads.memory_bandwidth import MemoryBandwidth
from pybench.model.workloads.turn import Turn
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.node.host_device_copy import HostDeviceCopyBench
from pybench.worker.backends.torch.node.memory_bandwidth import MemoryBandwidthBench
from pybench.worker.backends.turn.delivery import HandoverFolder, Named, adapter_config
from pybench.worker.backends.turn.engine import Engine
from pybench.worker.backends.turn.party import Party
from pybench.worker.backends.turn.trainer import Trainer

# Much larger than a cache, and small compared with the memory of trainer and engine.
_GPU_BYTES, _CPU_BYTES = 2**28, 2**24
_REPEATS = 5


@dataclass(frozen=True)
class Floor:
    """Rates of one GPU in bytes per second, by the same workloads that check a node, and what a handover moves.

    A GPU copies its share of the weights once within its memory (read and written), or by a file from the first GPU to
    the host and from the host to every GPU. Links between GPUs are left out: they add to a real handover, not to this.
    """

    num_gpus: int
    through_host: bool
    memory_bytes_per_s: float
    to_host_bytes_per_s: float
    from_host_bytes_per_s: float

    @classmethod
    def measured(cls, settings: Turn, device: torch.device) -> Floor:
        """Measure the rates on this rank's GPU. Its memory for it is free again afterwards."""
        alone = TorchRanks(0, 1, device)
        size = _GPU_BYTES if device.type == "cuda" else _CPU_BYTES
        memory = MemoryBandwidth(backend="torch", array_bytes=size, passes=_REPEATS)
        to_host = HostDeviceCopy(backend="torch", direction="d2h", copy_bytes=size, copies=_REPEATS)
        from_host = HostDeviceCopy(backend="torch", direction="h2d", copy_bytes=size, copies=_REPEATS)
        rates = (
            _second(MemoryBandwidthBench(memory, alone))["memory_bytes_per_s"],
            _second(HostDeviceCopyBench(to_host, alone))["host_copy_bytes_per_s"],
            _second(HostDeviceCopyBench(from_host, alone))["host_copy_bytes_per_s"],
        )
        if device.type == "cuda":
            torch.cuda.empty_cache()
        return cls(settings.tensor_parallel, settings.handover == "file", *rates)

    def there_and_back(self, num_bytes: float) -> float:
        """Seconds of so many bytes to the host and from it again."""
        return num_bytes / self.to_host_bytes_per_s + num_bytes / self.from_host_bytes_per_s

    def seconds(self, num_bytes: float) -> float:
        """The least time of a handover of ``num_bytes``, in seconds."""
        share = num_bytes / self.num_gpus
        if self.through_host:
            return num_bytes / self.to_host_bytes_per_s + share / self.from_host_bytes_per_s
        return 2 * share / self.memory_bytes_per_s


def _second(bench: MemoryBandwidthBench | HostDeviceCopyBench) -> dict[str, float]:
    """The first passes warm up."""
    bench.measure()
    return bench.measure()


class Handover:
    """This rank's part of it. A rank without an engine does ``assist`` with weights that go from memory to memory."""

    def __init__(
        self,
        settings: Turn,
        party: Party,
        engine: Engine | None,
        trainer: Trainer | None,
        assist: Callable[[Iterable[Named]], None],
    ) -> None:
        self._settings = settings
        self._party = party
        self._engine = engine
        self._trainer = trainer
        self._assist = assist
        by_file = settings.handover == "file" and trainer is not None
        self._folder = HandoverFolder(trainer.handover_bytes) if by_file and trainer is not None else None

    @property
    def streams(self) -> bool:
        """Whether weights go from one GPU memory to the other, so that both must be there."""
        return self._settings.handover != "file" and self._settings.lora_rank is None

    def send(self) -> None:
        """Every trained weight; all ranks gather them together."""
        assert self._trainer is not None, "weights go from memory to memory where each rank trains"
        take = self._engine.receive if self._engine is not None else self._assist
        take(self._trainer.weights(trainable=True))

    def leave_behind(self) -> object:
        """A file of all trained weights, or adapters as copies: what is left when the trainer's own are gone."""
        if self._settings.handover == "file":
            file = self._written()
            return self._party.broadcast(str(file) if file is not None else None)
        assert self._trainer is not None, "adapters go from memory to memory where each rank trains"
        return [(name, weight.clone()) for name, weight in self._trainer.weights(trainable=True)]

    def take(self, message: object) -> None:
        """Give the engine what was left behind."""
        if self._engine is None:
            return
        if isinstance(message, list):
            self._engine.receive(message)
        else:
            self._engine.read(_file(message))

    def prefetch(self, message: object) -> None:
        """Have the engine read the file while it generates."""
        if self._engine is not None:
            self._engine.prefetch(_file(message))

    def apply(self) -> None:
        """Give the engine what it has read meanwhile."""
        assert self._engine is not None
        self._engine.apply()

    def close(self) -> None:
        """Free what it left in memory."""
        if self._folder is not None:
            self._folder.remove()

    def _written(self) -> Path | None:
        """Gathered by all ranks of the trainer, written by the first."""
        if self._trainer is None:
            return None
        weights = self._trainer.weights(trainable=True)
        if self._folder is None or not self._party.is_first:
            for _ in weights:
                pass
            return None
        return self._folder.write(weights, adapter_config(self._settings))


def _file(message: object) -> Path:
    assert isinstance(message, str)
    return Path(message)
