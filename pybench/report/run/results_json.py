"""``results.json``: the results field by field."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from importlib import resources
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from pybench.files.suite.schema import DIALECT
from pybench.model.results import RESULTS_VERSION
from pybench.report.run.view import RunView

# The encoder has escaped the control characters of ASCII.
_NOT_ASCII = re.compile("[\x7f-\U0010ffff]")
_SENTENCE = re.compile(r"(?<=[.;]) (?=[A-Z`])")


def render(view: RunView) -> str:
    """Indented JSON. Raises ``ValueError`` rather than write NaN or infinity, which JSON can't express."""
    text = json.dumps(dataclasses.asdict(view.results), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    # A worker's message may hold lone surrogates, which UTF-8 can't encode and strict readers refuse.
    text = text.encode("utf-8", "replace").decode("utf-8")
    # Invisible and direction-changing characters stand only within strings, where an escape has the same meaning.
    return _NOT_ASCII.sub(lambda match: match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1], text)


class _EveryFieldRequired(GenerateJsonSchema):
    """Fields with a default are written too, so a reader may rely on them."""

    def field_is_required(self, field: Any, total: bool) -> bool:  # noqa: ANN401, ARG002 - pydantic's signature
        return True


def values_schema(kind: Any, name: str = "results") -> dict[str, Any]:  # noqa: ANN401 - a type or an alias of types
    """JSON Schema of a command's values: a field has the sentences of its structure that name it, or the usual ones."""
    schema = TypeAdapter(kind).json_schema(mode="serialization", schema_generator=_EveryFieldRequired)
    words = tomllib.loads(resources.files("pybench").joinpath("data", "results.toml").read_text(encoding="utf-8"))
    for structure in (schema, *schema.get("$defs", {}).values()):
        sentences = _SENTENCE.split(" ".join(structure.get("description", "").split()))
        for key, field in structure.get("properties", {}).items():
            about = [sentence for sentence in sentences if f"``{key}``" in sentence]
            if text := " ".join(about).replace("``", "") or words["fields"].get(key):
                field["description"] = text
    return {"$schema": DIALECT, "$id": f"urn:pybench:{name}:{RESULTS_VERSION}", **schema}
