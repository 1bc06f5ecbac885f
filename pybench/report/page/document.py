"""A page as one file that loads nothing: template, scripts, styles and power charts."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from pybench.power.chart import PowerPayload
from pybench.report.table import printable

_NO_POWER = PowerPayload()
_ASSETS = Path(__file__).parent / "assets"
_SIGNS = {
    **dict.fromkeys(("pass", "ok", "improved", "unchanged", "kept"), "✓"),
    **dict.fromkeys(("fail", "failed", "error", "regressed", "not kept"), "✗"),
    **dict.fromkeys(("missing", "not measured"), "○"),
    **dict.fromkeys(("inconclusive", "undecided", "open"), "≈"),
}

_RANK = (
    *("failed", "fail", "error", "regressed", "missing", "not measured", "inconclusive", "undecided", "incomparable"),
    *("skipped", "-", "improved", "pass", "unchanged"),
)


def verdict_rank(verdict: str) -> int:
    """The worst first."""
    return _RANK.index(verdict) if verdict in _RANK else len(_RANK)


def document(template: str, *, power: PowerPayload = _NO_POWER, **content: object) -> str:
    """The page ``template`` filled with ``content``; a hash permits each of its scripts and styles, nothing else."""
    names = ("uplot.min", "page") if power.attempts else ("page",)
    scripts, styles = ([_asset(f"{name}.{kind}") for name in names] for kind in ("js", "css"))
    page = _environment().get_template(template)
    return page.render(
        # Nothing may load; only these scripts and styles may act.
        csp="default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"script-src {' '.join(map(_hash, scripts))}; style-src {' '.join(map(_hash, styles))}",
        scripts=scripts,
        styles=styles,
        attribution=escape(_asset("uplot.LICENSE")),  # it must travel with the code
        power=power,
        **content,
    )


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # Text without invisible or direction-changing characters; the template then escapes it.
        finalize=lambda value: printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    made.filters["sign"] = lambda verdict: _SIGNS.get(verdict, "-")
    made.filters["rank"] = verdict_rank
    return made


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"
