"""The way of the trainer's weights to the engine: from memory to memory, or by a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from pybench.model.workloads.turn import Turn
from pybench.worker.backends.turn.delivery import HandoverFolder, Named, adapter_config
from pybench.worker.backends.turn.engine import Engine
from pybench.worker.backends.turn.party import Party
from pybench.worker.backends.turn.trainer import Trainer


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
