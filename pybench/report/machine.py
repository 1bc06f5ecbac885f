"""``results.json``: the results field by field."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from pybench.model.results import Results


def render(results: Results) -> str:
    """Indented JSON. Raises ``ValueError`` rather than write NaN or infinity, which JSON has no word for."""
    text = json.dumps(dataclasses.asdict(results), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    # A worker's message may hold lone surrogates, which UTF-8 can't write and strict readers refuse.
    return text.encode("utf-8", "replace").decode("utf-8")


def results_schema() -> dict[str, Any]:
    """JSON Schema of ``results.json``; every field is always written, so every field is required."""
    config = ConfigDict(json_schema_serialization_defaults_required=True)
    return TypeAdapter(Results, config=config).json_schema(mode="serialization")
