"""``results.json``: the results field by field."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from pybench.model.results import Results


def render(results: Results) -> str:
    """Indented JSON. Raises ``ValueError`` rather than write NaN or infinity, which JSON has no word for."""
    text = json.dumps(dataclasses.asdict(results), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    # A worker's message may hold lone surrogates, which UTF-8 can't write and strict readers refuse.
    return text.encode("utf-8", "replace").decode("utf-8")


class _EveryFieldRequired(GenerateJsonSchema):
    """Fields with a default are written too, so a reader may rely on them."""

    def field_is_required(self, field: Any, total: bool) -> bool:  # noqa: ANN401, ARG002 - pydantic's signature
        return True


def results_schema() -> dict[str, Any]:
    """JSON Schema of ``results.json``."""
    return TypeAdapter(Results).json_schema(mode="serialization", schema_generator=_EveryFieldRequired)
