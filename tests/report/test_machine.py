"""results.json."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest

from pybench.model.results import Results
from pybench.report.run.results_json import render, values_schema
from pybench.report.run.view import RunView
from tests.builders import estimate

MEASURED = Path(__file__).parents[2] / "suites" / "measured"


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    """By the schema of results."""
    return jsonschema.Draft202012Validator(values_schema(Results))


def test_schema_is_a_schema() -> None:
    """Valid by the draft that pydantic writes."""
    jsonschema.Draft202012Validator.check_schema(values_schema(Results))


@pytest.mark.parametrize("fixture", ["results", "empty", "all_skipped", "hostile"])
def test_results_satisfy_their_schema(
    validator: jsonschema.Draft202012Validator, fixture: str, request: pytest.FixtureRequest
) -> None:
    """Whatever a run shows."""
    validator.validate(json.loads(render(RunView(results=request.getfixturevalue(fixture)))))


@pytest.mark.parametrize("path", sorted(MEASURED.glob("*.json")), ids=lambda path: path.stem)
def test_kept_measurements_satisfy_the_schema(validator: jsonschema.Draft202012Validator, path: Path) -> None:
    """The texts name the measured GPUs."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    validator.validate(kept)
    assert kept["provenance"]["gpu_names"]


@pytest.mark.parametrize("kind", ["PointResult", "ScalingResult", "CheckResult", "Estimate", "Expected", "Results"])
def test_every_field_is_required(kind: str) -> None:
    """A reader need not ask whether a field is there, ``schema_version`` least of all."""
    schema = values_schema(Results)
    found = {**schema["$defs"], "Results": schema}[kind]
    assert set(found["required"]) == set(found["properties"])


def test_every_field_has_a_description() -> None:
    schema = values_schema(Results)
    fields = [field for kind in (schema, *schema["$defs"].values()) for field in kind["properties"].values()]
    assert all(field["description"] for field in fields)


def test_schema_refuses_an_unknown_verdict(validator: jsonschema.Draft202012Validator, empty: Results) -> None:
    """A reader can rely on the words."""
    values = {**json.loads(render(RunView(results=empty))), "verdict": "fine"}
    with pytest.raises(jsonschema.ValidationError, match="'fine' is not one of"):
        validator.validate(values)


def test_values_are_kept_to_the_last_digit(results: Results) -> None:
    """Only people's reports round."""
    values = json.loads(render(RunView(results=results)))
    assert values == json.loads(json.dumps(dataclasses.asdict(results)))
    expected = {"value": 12345.678, "low": 12300.0, "high": 12400.5, "unit": "tokens/s", "medians": []}
    assert expected == values["points"][0]["metrics"]["output_tokens_per_s"]


def test_unknown_is_null(results: Results) -> None:
    """Never 0, never left out."""
    row = json.loads(render(RunView(results=results)))["scaling"][2]
    assert [row[name] for name in ("speedup", "speedup_low", "speedup_high", "efficiency")] == [None] * 4


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_refuses_what_json_has_no_word_for(results: Results, value: float) -> None:
    """A file that half the readers reject would be worse than none."""
    metrics = {"step_s": estimate(value, "s")}
    broken = dataclasses.replace(results, points=(dataclasses.replace(results.points[0], metrics=metrics),))
    with pytest.raises(ValueError, match="Out of range float values are not JSON compliant"):
        render(RunView(results=broken))


def test_lone_surrogates_do_not_keep_the_file_from_being_written(hostile: Results) -> None:
    """They can't be encoded; the rest of the text stays as it was."""
    assert (
        hostile.reason.replace("\ud800", "?") == json.loads(render(RunView(results=hostile)).encode("utf-8"))["reason"]
    )


def test_no_invisible_character_stands_in_the_file(hostile: Results) -> None:
    """Characters that turn the direction of text are escaped, so that a reader of the file sees them."""
    text = render(RunView(results=hostile))
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "\\u202e" in text
