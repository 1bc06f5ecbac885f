"""The trainer's weights on their way to the engine, and the checks of a turn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from pybench.model.workloads.turn import Turn
from pybench.worker.backend import WrongResultError
from pybench.worker.backends.turn.delivery import HandoverFolder, Named, adapter_config
from pybench.worker.backends.turn.party import InferenceEngine, Party
from pybench.worker.backends.turn.trainer import Trainer

Digests = list[dict[str, int]]
"""The digests of each shard's part of every weight, by name."""

_MOST_GAP = {"float32": (1e-3, 1e-4), "bfloat16": (0.05, 0.02), "float16": (0.05, 0.02)}
"""Nats, and more as a fraction of the log-probabilities themselves, whose logits are rounded in proportion.

Engines and trainers that hold the same bfloat16 weights are 0.01 to 0.02 apart (NeMo RL, vime).
"""
_TIMES_NEARER = 2.0


def check_changed(before: Digests, after: Digests, trainable: Sequence[str]) -> int:
    """Number of trained weights that kept every bit on every shard: their type can't hold so small an update.

    At bfloat16 a weight of 1 changes by steps of 0.004 and more. Raises :class:`WrongResultError` where no trained
    weight changed, and for a frozen one that did.
    """
    names = list(dict.fromkeys(name for shard in after for name in shard))
    pairs = list(zip(before, after, strict=True))
    changed = {name for name in names if any(old.get(name) != new.get(name) for old, new in pairs)}
    if frozen := changed.difference(trainable):
        raise WrongResultError(f"{min(frozen)}: training changed this frozen weight")
    if names and not changed:
        raise WrongResultError("training changed no weight; set a larger learning_rate")
    return len(set(trainable) & set(names)) - len(changed)


def check_received(sent: Digests, held: Digests) -> None:
    """Raise :class:`WrongResultError` for a weight of which a shard does not hold the bits that were sent."""
    for shard, (own, found) in enumerate(zip(sent, held, strict=True)):
        for name, number in own.items():
            if name not in found:
                raise WrongResultError(f"{name}: shard {shard} of the engine holds no such weight")
            if found[name] != number:
                raise WrongResultError(f"{name}: shard {shard} of the engine holds other bits than the trainer sent")


def check_computes(found: torch.Tensor, new: torch.Tensor, old: torch.Tensor, dtype: str) -> dict[str, float]:
    """Mean distances of the engine's log-probabilities from the trainer's, new and old.

    Raises :class:`WrongResultError` where the engine does not compute with the new weights.
    """
    gap = _gap(found, new)
    least, fraction = _MOST_GAP[dtype]
    allowed = least + fraction * float(new.abs().mean())
    if not gap <= allowed:  # NaN must not pass
        raise WrongResultError(
            f"the engine's log-probabilities lie {gap:.3g} nats from the trainer's, allowed are {allowed:.3g}: "
            "it does not compute with the weights that it holds"
        )
    gap_to_old = _gap(found, old)
    if gap_to_old < _TIMES_NEARER * gap:
        raise WrongResultError(
            f"the engine's old and new weights can't be distinguished: its log-probabilities differ by {gap:.3g} nats "
            f"from the trainer's new ones and by {gap_to_old:.3g} from the previous turn's; set a larger learning_rate"
        )
    return {"logprob_gap": gap, "logprob_gap_to_old": gap_to_old}


def _gap(first: torch.Tensor, second: torch.Tensor) -> float:
    return float((first - second).abs().mean())


class Handover:
    """This rank's part of it."""

    def __init__(self, settings: Turn, party: Party, engine: InferenceEngine | None, trainer: Trainer | None) -> None:
        self._settings = settings
        self._party = party
        self._engine = engine
        self._trainer = trainer
        by_file = settings.handover == "file" and trainer is not None
        self._folder = HandoverFolder(trainer.handover_bytes) if by_file and trainer is not None else None

    @property
    def streams(self) -> bool:
        """Whether weights go from one GPU memory to the other, so that both must be there."""
        return self._settings.handover != "file" and self._settings.lora_rank is None

    def send(self) -> None:
        """Every trained weight; all ranks gather them together."""
        assert self._trainer is not None, "weights go from memory to memory where each rank trains"
        assert self._engine is not None, "and has a part of the engine"
        self._engine.receive(self._trainer.weights(trainable=True))

    def leave_behind(self) -> Path | list[Named]:
        """A file of all trained weights, or adapters as copies: what is left when the trainer's own are gone.

        All ranks of the trainer gather the weights, the first writes them.
        """
        weights = self._trainer.weights(trainable=True) if self._trainer is not None else iter(())
        if self._settings.handover != "file":
            assert self._trainer is not None, "adapters go from memory to memory where each rank trains"
            return [(name, weight.clone()) for name, weight in weights]
        file = None
        if self._folder is not None and self._party.rank == 0:
            file = str(self._folder.write(weights, adapter_config(self._settings)))
        else:
            for _ in weights:
                pass
        return Path(self._party.broadcast(file))

    def close(self) -> None:
        """Free what it left in memory."""
        if self._folder is not None:
            self._folder.remove()
