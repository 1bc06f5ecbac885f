"""A nightly workflow for a CI system with a GPU runner of its own: measure, judge against the history, keep both."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pybench.model.errors import UsageError
from pybench.model.manifest import duration_text

_ASSETS = Path(__file__).parent / "assets"
SYSTEMS = {"github": "github.yml.j2", "gitlab": "gitlab.yml.j2", "jenkins": "jenkinsfile.j2"}
"""The systems, each with the template of its file."""

# YAML, Groovy and shell give these characters no meaning.
_PLAIN = re.compile(r"[A-Za-z0-9_./@+=][A-Za-z0-9_./@+= -]*")
_CRON = re.compile(r"[0-9H*/,()-]+(?: [0-9A-Za-z*/,()-]+){4}")
_SPARE_S = 1800.0
"""Seconds of a job beyond its attempts: images, reports, the gate's reruns."""


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """The suite, runner and schedule of a workflow. ``runner`` is the label of the machines that have the GPUs.

    A run on fewer than ``gpus`` is no pass; 0 demands none.
    """

    suite: str
    runner: str = "gpu"
    gpus: int = 1
    schedule: str = "17 2 * * *"
    time_limit_s: float = 7200.0
    branch: str = "pybench-history"


def render(system: str, workflow: Workflow) -> str:
    """The file's text. Raises ``UsageError`` for text that could be taken for another part of the file."""
    for option, text in (("--suite", workflow.suite), ("--runner", workflow.runner), ("--branch", workflow.branch)):
        if not _PLAIN.fullmatch(text):
            raise UsageError(f"{option} {text!r}: may have letters, digits, spaces and _ . / @ + = - only")
    if not _CRON.fullmatch(workflow.schedule):
        raise UsageError(f"--schedule {workflow.schedule!r}: expected five fields of cron, such as '17 2 * * *'")
    # Sources for programs, none of it HTML; what goes in is checked above.
    environment = Environment(
        loader=FileSystemLoader(_ASSETS),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701
        variable_start_string="<<",
        variable_end_string=">>",
        keep_trailing_newline=True,
    )
    return environment.get_template(SYSTEMS[system]).render(
        workflow=workflow,
        require=f"--require gpus={workflow.gpus} " if workflow.gpus else "",
        limit=duration_text(workflow.time_limit_s),
        minutes=round((workflow.time_limit_s + _SPARE_S) / 60),
    )
