"""The page itself: one file that asks for nothing, whatever the run holds."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from pybench.model.results import Provenance, Results
from pybench.report.findings import findings, judged_sentence, not_judged, not_run
from pybench.report.flags import legend, relevant
from pybench.report.labels import short_labels
from pybench.report.page.charts import energy_chart, scaling_charts, step_chart
from pybench.report.page.node import gpu_cards, link_matrix
from pybench.report.page.points import point_table, verdict_rank, verdicts
from pybench.report.page.power import PowerPayload, power_payload
from pybench.report.printable import printable
from pybench.report.provenance import changes, sentence
from pybench.report.rows import comparisons, tables
from pybench.report.run_view import RunView

_ASSETS = Path(__file__).parent / "assets"
_SIGNS = {"pass": "✓", "ok": "✓", "fail": "✗", "failed": "✗", "error": "✗", "missing": "○", "inconclusive": "≈"}


def render(view: RunView) -> str:
    """One HTML file with its own scripts and styles, which a hash each permits and nothing else."""
    power = power_payload(view)
    scripts = (_asset("uplot.min.js"), _asset("page.js")) if power.attempts else (_asset("page.js"),)
    styles = (_asset("uplot.min.css"), _asset("page.css")) if power.attempts else (_asset("page.css"),)
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            view=view,
            results=view.results,
            csp=_policy(scripts, styles),
            scripts=[Markup(text) for text in scripts],  # noqa: S704 - files of this package
            styles=[Markup(text) for text in styles],  # noqa: S704 - as above
            column_json={name: Markup(_json(value)) for name, value in power.columns.items()},  # noqa: S704 - as below
            power_json=Markup(_json(power.attempts)),  # noqa: S704 - :func:`_json` escapes
            **_content(view, power),
        )
        + "\n"
    )


def _content(view: RunView, power: PowerPayload) -> dict[str, Any]:
    results = view.results
    names = short_labels(results.points, with_benchmark=True)
    flags = [flag for point in results.points for flag in relevant(point)]
    shown = ("Points", "Scaling")
    points = point_table(results)
    return {
        "judged": judged_sentence(results),
        "findings": findings(view),
        "not_judged": not_judged(results),
        "not_run": not_run(results),
        "points": points,
        "verdicts": verdicts(points),
        "charts": scaling_charts(results),
        "comparisons": comparisons(results),
        "energy": energy_chart(results),
        "steps": step_chart(view),
        "power": power,
        "attempt_energy": _attempt_energy(view, names),
        "power_reason": view.manifest.power_reason if view.manifest else None,
        "cards": gpu_cards(results),
        "matrix": link_matrix(view),
        "flag_legend": legend(flags),
        "details": [table for table in tables(results, names) if not table.title.startswith(shown)],
        "provenance": _provenance(results),
        "changed": changes(results.options),
        "sentence": sentence(results.provenance),
        "attribution": escape(_asset("uplot.LICENSE")),  # it must travel with the code
    }


def _attempt_energy(view: RunView, names: dict[str, str]) -> list[tuple[str, ...]]:
    """The figures behind the power chart: joules with the sensor's bound and watts of each attempt and GPU."""
    rows: list[tuple[str, ...]] = []
    for record in view.good_records:
        for gpu in record.energy.gpus if record.energy else ():
            bound = (
                f"[{gpu.energy_low_j:.1f}, {gpu.energy_high_j:.1f}]"
                if gpu.energy_low_j is not None and gpu.energy_high_j is not None
                else "-"
            )
            rows.append(
                (
                    names.get(record.point_id, record.point_id),
                    str(record.attempt),
                    gpu.uuid if gpu.index is None else f"GPU {gpu.index}",
                    "-" if gpu.energy_j is None else f"{gpu.energy_j:.1f} J",
                    bound,
                    "-" if gpu.mean_power_w is None else f"{gpu.mean_power_w:.0f} W",
                    "-" if gpu.max_power_w is None else f"{gpu.max_power_w:.0f} W",
                    ", ".join(gpu.flags),
                )
            )
    return rows


def _provenance(results: Results) -> list[tuple[str, str]]:
    """Every field that is known; nested values as words."""
    run = [
        ("run", results.run_id),
        ("profile", results.profile or "none"),
        ("machine", results.machine),
        ("fingerprint", results.fingerprint),
    ]
    found = [(field.name, getattr(results.provenance, field.name)) for field in fields(Provenance)]
    return run + [(name.replace("_", " "), _words(value)) for name, value in found if value not in (None, (), {})]


def _words(value: object) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{name} {text}" for name, text in value.items())
    if isinstance(value, (list, tuple)):
        return "\n".join(_words(entry) for entry in value)
    if hasattr(value, "__dataclass_fields__"):
        return ", ".join(f"{name.replace('_', ' ')}: {_words(text)}" for name, text in vars(value).items() if text)
    return str(value)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    made.filters["sign"] = lambda verdict: _SIGNS.get(verdict, "-")
    made.filters["rank"] = verdict_rank
    made.filters["lines"] = lambda text: [printable(line) for line in str(text).splitlines()]
    return made


def _visible(value: object) -> object:
    """Text without invisible or direction-changing characters; the template then escapes it."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _policy(scripts: tuple[str, ...], styles: tuple[str, ...]) -> str:
    """Nothing may load; only these scripts and styles may act."""
    return (
        "default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"script-src {' '.join(map(_hash, scripts))}; style-src {' '.join(map(_hash, styles))}"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def _json(value: object) -> str:
    """JSON for a script element: no character in it can end the element or start another."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
