"""Training samples in a memory-mapped file of tokens, as corpora are kept on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from pybench.model.workloads.train import Train
from pybench.worker.backends.common_torch.tokens import sample_tokens
from pybench.worker.backends.torch.train.loss import IGNORED

Integers = np.ndarray[Any, np.dtype[np.int64]]

_LENGTHS = 0x6C656E  # sets the seed of lengths apart from those of tokens
_FEWEST_TOKENS = 2  # one to see and one to predict


@dataclass(frozen=True)
class Layout:
    """Where each sequence begins and ends in the file, in tokens: one more entry than there are sequences."""

    offsets: Integers
    sequence_tokens: int

    @property
    def num_sequences(self) -> int:
        """Sequences of a whole step."""
        return len(self.offsets) - 1

    @property
    def num_labels(self) -> int:
        """Tokens of a whole step that are predicted: all but each sequence's first."""
        return int(self.offsets[-1]) - self.num_sequences

    @property
    def padding_fraction(self) -> float:
        """Share of the computed tokens that stand for none of the file's."""
        return 1 - int(self.offsets[-1]) / (self.num_sequences * self.sequence_tokens)


def layout(settings: Train) -> Layout:
    """Of one step's sequences: packed, all are full; else each is a sample, cut to ``sequence_tokens``."""
    count, length = settings.effective_batch_size, settings.sequence_tokens
    sizes = np.full(count, length) if settings.packing else np.minimum(sample_lengths(settings, count), length)
    return Layout(np.concatenate([[0], np.cumsum(sizes)]), length)


def sample_lengths(settings: Train, count: int) -> Integers:
    """Lengths of the first samples, in tokens: the same for any number of ranks, passes and workers."""
    mean, spread = settings.mean_sample_tokens, settings.length_spread_fraction or 0.0
    low, high = round(mean * (1 - spread)), round(mean * (1 + spread))
    drawn = np.random.default_rng([settings.seed, _LENGTHS]).integers(low, high, size=count, endpoint=True)
    return np.maximum(drawn, _FEWEST_TOKENS)


def num_samples(settings: Train) -> int:
    """Samples that training has, by their numbers from 0; packed, more than a step has sequences."""
    return len(_sizes(settings))


def write_tokens(path: Path, settings: Train, vocab_size: int) -> None:
    """Write one step's tokens, sample after sample; each sample's tokens follow from its number alone."""
    longest, kind = settings.sequence_tokens, token_type(vocab_size)
    with path.open("wb") as file:
        for number, size in enumerate(_sizes(settings)):
            tokens = sample_tokens(number, 1, max(longest, size), vocab_size, settings.seed)[0, :size]
            file.write(tokens.numpy().astype(kind).tobytes())


def _sizes(settings: Train) -> list[int]:
    """Tokens of each sample that the file has; packed, the last one is cut where the step's sequences end."""
    found = layout(settings)
    if not settings.packing:
        return [int(size) for size in np.diff(found.offsets)]
    wanted = int(found.offsets[-1])
    ends = np.cumsum(sample_lengths(settings, -(-wanted // _FEWEST_TOKENS)))
    count = int(np.searchsorted(ends, wanted)) + 1
    return [int(size) for size in np.diff(np.concatenate([[0], ends[: count - 1], [wanted]]))]


def token_type(vocab_size: int) -> np.dtype[Any]:
    """The smallest unsigned type that holds every token: two bytes where they do."""
    return np.dtype(np.uint16 if vocab_size <= np.iinfo(np.uint16).max + 1 else np.uint32)


class TokenFile(Dataset[torch.Tensor]):
    """Sequence ``index`` as a tensor of shape (tokens,); the file is mapped in each process that reads it."""

    def __init__(self, path: Path, found: Layout, vocab_size: int) -> None:
        self._path = path
        self._offsets = found.offsets
        self._type = token_type(vocab_size)

    def __getitem__(self, index: int) -> torch.Tensor:
        part = self._tokens[self._offsets[index] : self._offsets[index + 1]]
        return torch.from_numpy(part.astype(np.int64))

    @cached_property
    def _tokens(self) -> np.ndarray[Any, Any]:
        return np.memmap(self._path, dtype=self._type, mode="r")


@dataclass(frozen=True)
class Collate:
    """Makes tokens and labels of shape (samples, ``length``); a sequence's padding is at its end and not predicted."""

    length: int

    def __call__(self, sequences: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Of sequences as the file has them."""
        tokens = torch.zeros((len(sequences), self.length), dtype=torch.long)
        labels = torch.full_like(tokens, IGNORED)
        for row, sequence in enumerate(sequences):
            tokens[row, : len(sequence)] = sequence
            labels[row, : len(sequence) - 1] = sequence[1:]
        return tokens, labels
