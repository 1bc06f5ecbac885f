"""Check a turn's weights: the trainer's changes, the engine's copy, and the engine's results with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from pybench.worker.backend import WrongResultError

# Elements of a chunk. Each needs 16 bytes: a chunk fits a CPU's cache, or keeps a GPU busy.
_CHUNK = {"cpu": 2**16, "cuda": 2**24}
# Odd numbers of 62 bits (from the digits of pi and e): neighbouring places get weights that are far apart.
_STEP, _START = 0x243F6A8885A308D3 >> 2 | 1, 0x2B7E151628AED2A7 >> 2 | 1
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@torch.no_grad()
def digest(tensor: torch.Tensor) -> int:
    """Sum of every element's bits, each times an odd weight of its place, modulo 2^64; computed on its device.

    Bits count, not values: it distinguishes zeros of both signs, and NaNs. One wrong element always shows.
    """
    bits = tensor.detach().contiguous().view(-1).view(_INTEGERS[tensor.element_size()])
    size = _CHUNK[bits.device.type]
    places = torch.arange(min(size, bits.numel()), dtype=torch.int64, device=bits.device) * _STEP
    total = torch.zeros((), dtype=torch.int64, device=bits.device)
    for start in range(0, bits.numel(), size):
        part = bits[start : start + size].to(torch.int64)
        weights = places[: part.numel()].add(_signed(start * _STEP + _START)).bitwise_or_(1)
        total += weights.mul_(part).sum()
    return int(total.item()) % 2**64


def _signed(number: int) -> int:
    """The same 64 bits as a signed number."""
    return (number + 2**63) % 2**64 - 2**63


Digests = list[dict[str, int]]
"""Of each shard, the digest of its part of every weight, by name."""

_MOST_GAP = {"float32": (1e-3, 1e-4), "bfloat16": (0.05, 0.02), "float16": (0.05, 0.02)}
"""Nats, and more as a fraction of the log-probabilities themselves, whose logits are rounded in proportion.

Engines and trainers that hold the same bfloat16 weights are 0.01 to 0.02 apart (NeMo RL, vime).
"""
_TIMES_NEARER = 2.0


def check_changed(
    before: Digests, after: Digests, trainable: Sequence[str], was_rounded_away: Callable[[str], bool]
) -> int:
    """Number of trained weights that no shard saw change because their type can't hold so small an update.

    At bfloat16 a weight of 1 changes by steps of 0.004 and more. Raises :class:`WrongResultError` for any other trained
    weight that did not change, and for a frozen one that did.
    """
    trained, num_rounded = set(trainable), 0
    for name in _names(after):
        changed = any(old.get(name) != new.get(name) for old, new in zip(before, after, strict=True))
        if name not in trained and changed:
            raise WrongResultError(f"{name}: training changed this frozen weight")
        if name in trained and not changed:
            if not was_rounded_away(name):
                raise WrongResultError(f"{name}: training did not change it")
            num_rounded += 1
    return num_rounded


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
            f"the engine's old and new weights can't be distinguished: its log-probabilities lie {gap:.3g} nats from "
            f"the trainer's new ones and {gap_to_old:.3g} from those of the turn before; set a larger learning_rate"
        )
    return {"logprob_gap": gap, "logprob_gap_to_old": gap_to_old}


def _gap(first: torch.Tensor, second: torch.Tensor) -> float:
    return float((first - second).abs().mean())


def _names(digests: Sequence[Mapping[str, int]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for shard in digests for name in shard))
