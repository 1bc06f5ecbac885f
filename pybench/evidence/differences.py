"""Claimed values of JSON against computed ones: every value that differs, by its place."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

TOLERANCE = 1e-9
"""Relative tolerance of figures: builds of NumPy sum in different orders. No report prints that many digits."""

_NAMES = ("id", "point_id", "name", "subject", "metric", "count", "uuid")
_LONGEST = 80


def differences(
    claimed: Any,  # noqa: ANN401 - a value of JSON
    computed: Any,  # noqa: ANN401 - a value of JSON
    place: str = "",
    tolerance: float = TOLERANCE,
    *,
    common: bool = False,
) -> Iterator[tuple[str, str]]:
    """Place and text of each value that differs, or that only one side has.

    Numbers are equal within the relative ``tolerance``. With ``common``, fields that only one side has and differing
    texts are passed over: builds of pybench add fields and change words.
    """
    if isinstance(claimed, dict) and isinstance(computed, dict):
        for name in dict.fromkeys((*claimed, *computed)):
            inside = f"{place}.{name}" if place else str(name)
            if name in claimed and name in computed:
                is_word = common and name not in {"verdict", "status"} and isinstance(claimed[name], str)
                if not (is_word and isinstance(computed[name], str)):
                    yield from differences(claimed[name], computed[name], inside, tolerance, common=common)
            elif not common:
                claim = _shown(claimed[name]) if name in claimed else "nothing"
                result = _shown(computed[name]) if name in computed else "nothing"
                yield inside, f"{claim} is claimed, {result} follows"
    elif isinstance(claimed, list) and isinstance(computed, list):
        if len(claimed) != len(computed):
            yield place, f"{len(claimed)} entries are claimed, {len(computed)} follow"
        for index, (claim, entry) in enumerate(zip(claimed, computed, strict=False)):
            names = [str(entry[key]) for key in _NAMES if isinstance(entry, dict) and entry.get(key) is not None]
            yield from differences(claim, entry, f"{place}[{' '.join(names) or index}]", tolerance, common=common)
    elif not _equal(claimed, computed, tolerance):
        yield place, f"{_shown(claimed)} is claimed, {_shown(computed)} follows"


def num_values(value: Any) -> int:  # noqa: ANN401 - a value of JSON
    """Number of single values inside."""
    if isinstance(value, dict):
        return sum(map(num_values, value.values()))
    return sum(map(num_values, value)) if isinstance(value, list) else 1


def _equal(claimed: Any, computed: Any, tolerance: float) -> bool:  # noqa: ANN401 - values of JSON
    if isinstance(claimed, bool) or isinstance(computed, bool):
        return claimed is computed
    if isinstance(claimed, int | float) and isinstance(computed, int | float):
        try:
            return claimed == computed or math.isclose(claimed, computed, rel_tol=tolerance)
        except OverflowError:  # an integer above every float
            return False
    return type(claimed) is type(computed) and bool(claimed == computed)


def _shown(value: Any) -> str:  # noqa: ANN401 - a value of JSON
    text = f"{value:.10g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
