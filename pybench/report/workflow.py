"""A nightly workflow for a CI system with a GPU runner of its own: measure, judge against the history, keep both."""

from __future__ import annotations

import re
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


def render(system: str, *, suite: str, runner: str, gpus: int, schedule: str, time_limit_s: float, branch: str) -> str:
    """The file's text. ``runner`` is the label of the machines that have the GPUs; ``branch`` keeps the nights.

    A run on fewer than ``gpus`` is no pass; 0 demands none. Raises ``UsageError`` for text that could be taken for
    another part of the file.
    """
    for option, text in (("--suite", suite), ("--runner", runner), ("--branch", branch)):
        if not _PLAIN.fullmatch(text):
            raise UsageError(f"{option} {text!r}: may have letters, digits, spaces and _ . / @ + = - only")
    if not _CRON.fullmatch(schedule):
        raise UsageError(f"--schedule {schedule!r}: expected five fields of cron, such as '17 2 * * *'")
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
        suite=suite,
        runner=runner,
        schedule=schedule,
        branch=branch,
        require=f"--require gpus={gpus} " if gpus else "",
        limit=duration_text(time_limit_s),
        minutes=round((time_limit_s + _SPARE_S) / 60),
    )
