"""The checks of a turn: the changed weights, and the weights that the engine holds and computes with."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pybench.worker.backend import WrongResultError

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
    gap, gap_to_old = (float((found - other).abs().mean()) for other in (new, old))
    least, fraction = _MOST_GAP[dtype]
    allowed = least + fraction * float(new.abs().mean())
    if not gap <= allowed:  # NaN must not pass
        raise WrongResultError(
            f"the engine's log-probabilities lie {gap:.3g} nats from the trainer's, allowed are {allowed:.3g}: "
            "it does not compute with the weights that it holds"
        )
    if gap_to_old < _TIMES_NEARER * gap:
        raise WrongResultError(
            f"the engine's old and new weights can't be distinguished: its log-probabilities differ by {gap:.3g} nats "
            f"from the trainer's new ones and by {gap_to_old:.3g} from the previous turn's; set a larger learning_rate"
        )
    return {"logprob_gap": gap, "logprob_gap_to_old": gap_to_old}
