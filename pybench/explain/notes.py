"""Sentences about points, each once with the points that it holds for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def stated_once(found: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Of pairs of a point and a sentence, ``a, b: sentence``, in the order of the sentences."""
    points: dict[str, list[str]] = {}
    for point, sentence in found:
        points.setdefault(sentence, []).append(point)
    yield from (f"{', '.join(names)}: {sentence}" for sentence, names in points.items())
