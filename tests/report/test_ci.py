"""Workflows for CI systems: held against published schemas and a grammar; other text in them is refused."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import tree_sitter_groovy
import yaml  # type: ignore[import-untyped]
from tree_sitter import Language, Parser

from pybench.model.errors import UsageError
from pybench.report.workflow import SYSTEMS, render

PLAIN: dict[str, Any] = {
    "suite": "suites/node check.toml",
    "runner": "h200",
    "gpus": 4,
    "schedule": "5 1 * * 1-5",
    "time_limit_s": 5400.0,
    "branch": "pybench-history",
}


def _schema(name: str) -> Any:
    """One of the schemas that check-jsonschema carries, without importing its command."""
    found = importlib.util.find_spec("check_jsonschema")
    assert found is not None
    assert found.submodule_search_locations is not None
    folder = Path(found.submodule_search_locations[0]) / "builtin_schemas" / "vendor"
    return json.loads((folder / name).read_text())


def _problems(schema: Any, document: Any) -> list[str]:
    return [error.message for error in jsonschema.validators.validator_for(schema)(schema).iter_errors(document)]


def _github(text: str) -> Any:
    """YAML 1.1 reads the key ``on`` as true."""
    document = yaml.safe_load(text)
    return {"on": document.pop(True), **document}


def test_a_github_workflow_is_one() -> None:
    """By GitHub's published schema; one with a wrong key is refused by it."""
    document = _github(render("github", **PLAIN))
    schema = _schema("github-workflows.json")
    assert _problems(schema, document) == []
    assert _problems(schema, {**document, "jobz": {}})
    job = document["jobs"]["nightly"]
    assert job["runs-on"] == ["self-hosted", "h200"]
    assert job["timeout-minutes"] == 120
    assert document["concurrency"]["cancel-in-progress"] is False
    measure = next(step["run"] for step in job["steps"] if step.get("name") == "Measure")
    assert 'pybench run "suites/node check.toml" --runs "$RUNS" --require gpus=4 --time-limit 1h30m' in measure


def test_a_gitlab_job_is_one() -> None:
    """By GitLab's published schema."""
    document = yaml.safe_load(render("gitlab", **PLAIN))
    schema = _schema("gitlab-ci.json")
    assert _problems(schema, document) == []
    assert _problems(schema, {"pybench": {**document["pybench"], "scripts": []}})
    job = document["pybench"]
    assert (job["tags"], job["timeout"], job["allow_failure"]) == (["h200"], "120 minutes", {"exit_codes": 4})
    assert job["artifacts"]["reports"]["junit"] == "runs/*/*/*.xml"


def test_a_jenkinsfile_is_groovy() -> None:
    """By Groovy's grammar; Jenkins itself checks a pipeline only on a server."""
    parser = Parser(Language(tree_sitter_groovy.language()))
    text = render("jenkins", **PLAIN)
    assert not parser.parse(text.encode()).root_node.has_error
    assert parser.parse(text.replace("pipeline {", "pipeline {{", 1).encode()).root_node.has_error
    assert "agent { label 'h200' }" in text


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_machine_without_gpus_needs_none(system: str) -> None:
    """No demand is written."""
    assert "--require" not in render(system, **{**PLAIN, "gpus": 0})


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("suite", 'x"; rm -rf /'),
        ("suite", "$(id)"),
        ("suite", "${{ secrets.TOKEN }}"),
        ("suite", "a\nb: c"),
        ("suite", ""),
        ("suite", "--help"),
        ("runner", "gpu'"),
        ("branch", "a#b"),
        ("schedule", "every night"),
        ("schedule", '* * * * *"'),
    ],
)
def test_text_that_is_more_than_text_is_refused(system: str, field: str, text: str) -> None:
    """It would be read by YAML, Groovy or a shell."""
    with pytest.raises(UsageError, match=f"--{field} "):
        render(system, **{**PLAIN, field: text})
