"""Rewrite what the program generates in the documents: tables of settings and metrics, a report.

::

    python docs/tables.py            rewrite what is out of date, and name those files
    python docs/tables.py --check    change nothing; exit 1 if a table is out of date

A table stands between ``<!-- table: NAME -->`` and ``<!-- end of table -->``.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pybench
from pybench.core.gpu_models import with_gpus
from pybench.core.judged_by import BASELINE, NOTHING, RATES, judged_by
from pybench.core.node_faults import REMEDIES
from pybench.files.shipped import described_suites
from pybench.files.suite.expected_table import load_tables
from pybench.files.suite.schema import suite_schema
from pybench.machine.environment import snapshot
from pybench.model.machine import Machine
from pybench.model.results import Results
from pybench.model.suite import Effort
from pybench.model.workloads.registry import METRICS_OF, SETTINGS_OF, setting_names
from pybench.model.workloads.settings import WorkloadName
from pybench.model.workloads.train_rules import STRATEGIES
from pybench.model.workloads.traits import MetricTraits
from pybench.report.run.results_json import values_schema
from pybench.report.run.terminal import render
from pybench.report.run.view import RunView
from pybench.run.suite_plan import kept_attempts_s, plan_suite

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent
KEPT_RUN = "suites/measured/tp_scaling-h200x4-20261121.json"
_TABLE = re.compile(r"(<!-- table: ([\w -]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
# Percentiles are described with their mean, not in a row each.
_PERCENTILE = re.compile(r"_p\d+_s$")
_MANY = 2**20

Properties = Mapping[str, Mapping[str, Any]]
"""A JSON Schema's ``properties``: each key with its type, limits and description."""


@cache
def tables() -> dict[str, str]:
    """Every generated table by name."""
    of = {name: _properties(name) for name in SETTINGS_OF}
    every = set.intersection(*map(set, of.values()))
    models = set.intersection(*(set(own) for own in of.values() if "model" in own)) - every
    found = {
        "settings of every workload": _settings(of["generate"], every, _defaults(SETTINGS_OF["generate"])),
        "settings of models": _settings(of["generate"], models, _defaults(SETTINGS_OF["generate"])),
        "effort": _settings(_benchmark("generate"), (field.name for field in fields(Effort)), _defaults(Effort)),
        "strategies": _strategies(),
        "faults": _faults(),
        "suites": _suites(),
        "metrics of every workload": _metrics(_shared_metrics()),
        "report": _report(),
        "api": _api(),
        "models": "".join(f"- `{name}`\n" for name in of["generate"]["model"]["enum"]),
    }
    for name, own in of.items():
        found[f"settings of {name}"] = _settings(own, set(own) - every - models, _defaults(SETTINGS_OF[name]))
        found[f"metrics of {name}"] = _metrics(
            {k: v for k, v in METRICS_OF[name].items() if k not in _shared_metrics()}
        )
    return found


def rewritten(text: str) -> str:
    """The document with its tables up to date. Raises ``KeyError`` for a table that nothing generates."""
    now = tables()
    return _TABLE.sub(lambda match: f"{match[1]}\n{now[match[2]]}\n{match[3]}", text)


def stale() -> Iterator[tuple[Path, str]]:
    """Documents with tables that differ from the program, and schema files, each with its new text."""
    for path in (ROOT / "README.md", *sorted(FOLDER.glob("**/*.md"))):
        text = path.read_text(encoding="utf-8")
        now = rewritten(text)
        if now != text:
            yield path, now
    for name, schema in (("suite", suite_schema()), ("results", values_schema(Results))):
        version = str(schema["$id"]).rpartition(":")[-1]
        path, now = ROOT / "suites" / f"{name}-{version}.schema.json", _lines(schema)
        if not path.exists() or path.read_text(encoding="utf-8") != now:
            yield path, now


def _lines(schema: Mapping[str, Any]) -> str:
    """A schema as JSON, a line for each structure."""
    structures = schema["$defs"]
    defined = ",\n".join(f"{json.dumps(name)}: {json.dumps(structures[name])}" for name in structures)
    rest = json.dumps({name: value for name, value in schema.items() if name != "$defs"})
    return f'{rest[:-1]},\n"$defs": {{\n{defined}\n}}}}\n'


def _benchmark(workload: str) -> Properties:
    found: Properties = _schema()[f"{workload}_benchmark"]["properties"]
    return found


@cache
def _schema() -> dict[str, Any]:
    found: dict[str, Any] = suite_schema()["$defs"]
    return found


def _properties(workload: WorkloadName) -> Properties:
    names = setting_names(workload)
    return {name: note for name, note in _benchmark(workload).items() if name in names}


def _defaults(kind: type) -> dict[str, Field[Any]]:
    return {field.name: field for field in fields(kind)}


def _settings(properties: Properties, names: Iterable[str], declared: Mapping[str, Field[Any]]) -> str:
    chosen = set(names)
    rows = [
        (f"`{name}`", _values(name, note), _default(declared.get(name)), note.get("description", ""))
        for name, note in properties.items()
        if name in chosen
    ]
    return _table(("setting", "values", "default", "meaning"), rows)


def _values(name: str, note: Mapping[str, Any]) -> str:
    if name == "model":
        return "a [model name](#models)"
    if "oneOf" in note or "anyOf" in note:
        return " or ".join(_values(name, one) for one in note.get("oneOf", note.get("anyOf")))
    if "enum" in note or "const" in note:
        return ", ".join(f"`{value}`" for value in note.get("enum", [note.get("const")]))
    if "minimum" in note and "maximum" in note:
        return f"{_number(note['minimum'])} to {_number(note['maximum'])}"
    kind = str(note["type"])
    return {"boolean": "`true`, `false`", "object": "table"}.get(kind, kind)


def _number(value: float) -> str:
    if isinstance(value, int) and value >= _MANY and value & (value - 1) == 0:
        return f"2^{value.bit_length() - 1}"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _default(field: Field[Any] | None) -> str:
    if field is None:  # of a suite file alone
        return "-"
    if field.default is MISSING:
        return "required" if field.default_factory is MISSING else "empty"
    if field.default is None:
        return "-"
    if isinstance(field.default, bool | str):
        return f"`{str(field.default).lower()}`"
    return _number(field.default)


def _report() -> str:
    text = render(RunView.of_file(ROOT / KEPT_RUN), width=80)
    return f"```text\n$ pybench report {KEPT_RUN}\n{text}```\n"


def _api() -> str:
    """Every public name with its signature and docstring."""
    return "".join(_described(name, getattr(pybench, name)) for name in pybench.__all__)


def _described(name: str, value: object) -> str:
    if not isinstance(value, type):
        return f"## `pybench.{name}`\n\nThe installed version, such as `0.1.0`.\n"
    lines = [f"## `pybench.{name}`\n", _plain(inspect.getdoc(value)) + "\n"]
    if is_dataclass(value):
        lines += ["".join(f"- `{one.name}`: `{one.type}`\n" for one in fields(value) if not one.name.startswith("_"))]
    for member, kind in inspect.getmembers(value):
        if member.startswith("_") or not (inspect.isfunction(kind) or isinstance(kind, property)):
            continue
        signature = str(inspect.signature(kind)).replace("'", "") if inspect.isfunction(kind) else ""
        lines.append(f"### `{name}.{member}{signature}`\n\n{_plain(inspect.getdoc(kind))}\n")
    return "\n".join(lines) + "\n"


def _plain(docstring: str | None) -> str:
    """A docstring as Markdown."""
    return re.sub(r":\w+:`([\w.]+)`", r"`\1`", docstring or "").replace("``", "`")


def _shared_metrics() -> dict[str, MetricTraits]:
    first, *others = METRICS_OF.values()
    return {name: traits for name, traits in first.items() if all(name in other for other in others)}


def _metrics(traits: Mapping[str, MetricTraits]) -> str:
    rows = [
        (f"`{name}`", one.unit or "-", "more" if one.higher_is_better else "less", one.description)
        for name, one in traits.items()
        if _PERCENTILE.sub("_s", name) not in traits or not _PERCENTILE.search(name)
    ]
    return _table(("metric", "unit", "better", "meaning"), rows)


def _suites() -> str:
    """Each shipped suite on 1 to 8 H200s: minutes by kept runs, and how many points are judged before a node check."""
    lines = ["| suite | 1 H200 | 2 | 4 | 8 |", "| --- | --- | --- | --- | --- |"]
    here = snapshot()
    for name in described_suites():
        cells = [_minutes(name, with_gpus(here, "h200", count)) for count in (1, 2, 4, 8)]
        if any(" min" in cell for cell in cells):
            lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "".join(f"{line}\n" for line in lines)


def _minutes(name: str, machine: Machine) -> str:
    """``26 min; 4 of 8``: by kept runs, else ``?``; a dash where no point is planned."""
    suite, plan = plan_suite(Path(name), machine, assumed_hosts=1)
    if not plan.points:
        return "-"
    tables = load_tables(Path(suite.path), sorted(suite.tables))
    judges = judged_by(suite, plan, tables, machine)
    judged = sum(not {BASELINE, RATES, NOTHING}.issuperset(words) for words in judges.values())
    kinds = (machine, replace(machine, kind="h100"))
    takes = next(
        (
            round(sum(times[point.digest] * point.effort.attempts for point in plan.points) / 60)
            for there in kinds
            if len(times := kept_attempts_s(name, plan, there)) == len(plan.points)
        ),
        None,
    )
    return f"{'?' if takes is None else f'{max(1, takes)} min'}; {judged} of {len(plan.points)}"


_LOG = "`nvidia-bug-report.sh`"
_FAULTS = {
    "wrong_results": (
        "results differ from the usual ones",
        "a defective GPU; rarely its memory or an overclock",
        f"bundle of two runs that both name it, {_LOG}",
    ),
    "memory_errors": (
        "memory errors, remapped rows",
        "worn or defective memory cells; a pending remap needs a reset",
        f"`nvidia-smi -q -d ECC,ROW_REMAPPER`, bundle, {_LOG}",
    ),
    "xid": (
        "XID in the kernel's log",
        "a fault of GPU, NVLink or slot, or of a driver; the number says which",
        f"lines of the kernel's log, {_LOG}",
    ),
    "fabric": (
        "NVSwitch fabric not up or without multicast, or a fatal error of an NVSwitch",
        "a fabric manager that does not run or has another version than the driver; a defective switch or link",
        f"log of the fabric manager, {_LOG}",
    ),
    "heat": (
        "slowed by heat or a power brake, or warmer than the others",
        "blocked air, a failed fan or pump, a loose cooler, a power supply that brakes",
        "bundle, temperatures of fans and inlets from the BMC",
    ),
    "slow_gpu": (
        "slower than its neighbours, or a lower clock",
        "another process, a lowered power limit or clock lock, heat, a defective GPU",
        "bundle of two runs that both name it, after a reset and a cold start",
    ),
    "slow_link": (
        "link slower than others of its kind",
        "NVLinks that are down or retrain, a bridge or switch, ACS or IOMMU on the way over PCIe",
        "`nvidia-smi nvlink -s -e`, bundle, log of the fabric manager",
    ),
    "few_nvlinks": (
        "fewer active NVLinks than other GPUs of the model",
        "links that failed to train, a bridge or switch, a GPU that needs a reset",
        "`nvidia-smi nvlink -s -e`, bundle, log of the fabric manager",
    ),
    "narrow_pcie": (
        "PCIe link narrower or slower than it could be",
        "a card that sits badly, a riser, dirt, a slot or BIOS setting",
        "`lspci -vv` of the slot, bundle",
    ),
    "slow_host_copies": (
        "copies to and from the host slower than the neighbours'",
        "a narrow PCIe link, a NUMA node without memory, IOMMU, another job on the host",
        "`nvidia-smi topo -m`, `lspci -vv`, bundle",
    ),
    "more_power": (
        "more joules for the same work",
        "heat (leakage), a board with a low bin, a sensor with another gain",
        "bundle; only beside another fault a reason to replace it",
    ),
}
"""Title, likely causes, and what the vendor needs, of each kind of fault."""


def _faults() -> str:
    """Each kind of fault of a node check: its causes, what to try, what a vendor needs."""
    head = "| fault | likely causes | what to try | what to send the vendor |\n| --- | --- | --- | --- |\n"
    named = ((*_FAULTS[kind], _code(remedy)) for kind, remedy in REMEDIES.items())
    return head + "".join(f"| {title} | {causes} | {what} | {vendor} |\n" for title, causes, vendor, what in named)


def _code(remedy: str) -> str:
    """The commands behind the colon as code."""
    words, _, commands = remedy.replace("{gpus}", "GPU").replace("|", "\\|").partition(": ")
    return f"{words}: {', '.join(f'`{command}`' for command in commands.split('; '))}"


def _strategies() -> str:
    rows = [
        (f"`{name}`", _codes(one.parallel_axes), _codes(one.options), ", ".join(one.model_types or ("any",)))
        for name, one in STRATEGIES.items()
    ]
    return _table(("strategy", "degrees", "options", "model families"), rows)


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


def main(arguments: list[str]) -> int:
    """Exit code: 1 when ``--check`` found a table out of date."""
    found = list(stale())
    for path, text in found:
        print(f"{path.relative_to(ROOT)}: tables out of date")
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
    if not found:
        print("every table is up to date")
    return 1 if found and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
