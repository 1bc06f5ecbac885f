"""Turns of the torch backend: the engine in the trainer's process or in its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pybench.model.workloads.turn import Turn
from pybench.worker.backends.common_torch.process_group import TorchRanks, describe
from pybench.worker.backends.torch.turn.apart import EngineApart
from pybench.worker.backends.torch.turn.engine import TorchEngine
from pybench.worker.backends.turn.engine import Engine
from pybench.worker.backends.turn.party import Party
from pybench.worker.backends.turn.trainer import Trainer
from pybench.worker.backends.turn.turns import Turns


@contextmanager
def turns(settings: Turn, architecture: dict[str, Any], ranks: TorchRanks) -> Iterator[Turns]:
    """Start the engine, then the trainer where this rank trains."""
    uuid = describe(ranks.device, 0).uuid
    trains = settings.num_trainers > 1 or ranks.rank == 0
    party = Party(ranks.rank, ranks.world_size, ranks.device, (uuid,) if uuid else (), trains=trains)
    training = ranks if settings.num_trainers > 1 else TorchRanks(0, 1, ranks.device)
    engine = _engine(settings, architecture, ranks)
    try:
        work = Turns(
            settings, architecture["vocab_size"], party, engine, lambda: Trainer(settings, architecture, training)
        )
        try:
            yield work
        finally:
            work.close()
    finally:
        engine.close()


def _engine(settings: Turn, architecture: dict[str, Any], ranks: TorchRanks) -> Engine:
    if settings.num_processes > 1 and ranks.world_size == 1:
        return EngineApart(settings, architecture, ranks.device)
    return TorchEngine(settings, architecture, ranks)
