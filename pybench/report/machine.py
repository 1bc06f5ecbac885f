"""``results.json``: the results field by field."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from pydantic import TypeAdapter

from pybench.model.results import Results


def render(results: Results) -> str:
    """Indented JSON. Raises ``ValueError`` rather than write NaN or infinity, which JSON has no word for."""
    return json.dumps(dataclasses.asdict(results), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def results_schema() -> dict[str, Any]:
    """JSON Schema of ``results.json``."""
    return TypeAdapter(Results).json_schema(mode="serialization")
