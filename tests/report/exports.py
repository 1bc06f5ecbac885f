"""The official reader of each exported format, or its published contract where the reader is no Python."""

from __future__ import annotations

BENCHER = {
    "type": "object",
    "minProperties": 1,
    "propertyNames": {"minLength": 1, "maxLength": 1024},
    "additionalProperties": {
        "type": "object",
        "propertyNames": {"minLength": 1, "maxLength": 64, "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"},
        "additionalProperties": {
            "type": "object",
            "properties": {name: {"type": "number"} for name in ("value", "lower_value", "upper_value")},
            "required": ["value"],
            "additionalProperties": False,
        },
    },
}
"""Bencher's reference of its metric format: names of benchmarks, slugs of measures, a value with two limits."""

GITHUB_BENCHMARK = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "unit": {"type": "string"},
            "value": {"type": "number"},
            "range": {"type": "string"},
            "extra": {"type": "string"},
        },
        "required": ["name", "unit", "value"],
        "additionalProperties": False,
    },
}
"""What github-action-benchmark documents for ``customBiggerIsBetter`` and ``customSmallerIsBetter``."""
