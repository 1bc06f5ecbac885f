"""Integer columns as text for a page: differences, bytes of equal weight together, gzip, base64."""

from __future__ import annotations

import base64
import gzip

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


def pack(values: Integers) -> str:
    """``values`` as text that the page's script decodes. Raises ``ValueError`` where a difference needs 33 bits."""
    differences = np.diff(values, prepend=np.int64(0))
    if len(differences) and np.abs(differences).max() >= 2**31:
        raise ValueError("two neighbouring values differ by more than 32 bits hold")
    planes = differences.astype("<i4").view(np.uint8).reshape(-1, 4).T
    return base64.b64encode(gzip.compress(planes.tobytes(), compresslevel=6, mtime=0)).decode("ascii")


def pack_levels(values: Integers) -> dict[str, str]:
    """``values`` that repeat, as their sorted distinct levels and the rank of each among them.

    A sensor reports multiples of its own step, so ranks differ by less than values do.
    """
    levels, ranks = np.unique(values, return_inverse=True)
    return {"levels": pack(levels), "ranks": pack(ranks.astype(np.int64))}


def unpack(text: str) -> Integers:
    """What :func:`pack` was given."""
    planes = np.frombuffer(gzip.decompress(base64.b64decode(text)), dtype=np.uint8).reshape(4, -1)
    return np.cumsum(np.ascontiguousarray(planes.T).view("<i4").ravel(), dtype=np.int64)


def extremes(times: Integers, values: Integers, num_buckets: int) -> tuple[Integers, Integers]:
    """Exact least and greatest value in each of ``num_buckets`` equal spans of time that has a value.

    Two columns, times and values: a bucket gives its first-seen extreme and then the other, at their own times.
    """
    if len(values) <= 2 * num_buckets:
        return times, values
    span = max(int(times[-1] - times[0]), 1)
    bucket = np.minimum((times - times[0]) * num_buckets // (span + 1), num_buckets - 1)
    starts = np.flatnonzero(np.diff(bucket, prepend=np.int64(-1)))
    ends = np.append(starts[1:], len(values))
    kept = np.array(
        [(a + int(np.argmin(values[a:b])), a + int(np.argmax(values[a:b]))) for a, b in zip(starts, ends, strict=True)]
    )
    places = np.unique(kept)
    return times[places], values[places]
