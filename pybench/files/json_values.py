"""JSON of our own files as values, without numbers that computing or reporting fails on."""

from __future__ import annotations

import json
import re
from typing import Any

from pybench.model.workloads.rules import LARGEST

# JSON's escape for half of a character beyond 16 bits; alone it is no text, and can't be printed.
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


def decode_json(data: bytes) -> Any:  # noqa: ANN401 - any value
    """The value. Raises ``ValueError`` for invalid JSON, and for a number that is not finite or far too large."""
    try:
        found = json.loads(data.decode(), parse_float=_bounded, parse_constant=_bounded)
        if _HALF.search(data):
            json.dumps(found, ensure_ascii=False).encode()
        return found  # noqa: TRY300 - encoding may fail, too
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error


def _bounded(text: str) -> float:
    value = float(text)
    if not -LARGEST <= value <= LARGEST:
        raise ValueError(f"{text[:40]} is larger than any measurement, or no number")
    return value
