"""Text of a fleet for the terminal: the state, each node with its symptoms, links, and notes."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping

from rich.console import Console
from rich.text import Text

from pybench.core.numbers import node_ranges, plain, short_percent
from pybench.fleet.values import BY_IMPORTANCE, FleetResult, NodeState, Symptom
from pybench.model.figures import NO_MEDIANS, RunFigures, key_values
from pybench.model.text import counted, plural
from pybench.report.table import cut, printable
from pybench.report.text.change_words import value_text
from pybench.report.text.labels import labels_of_runs
from pybench.report.text.table import COLOURS, Paper, hanging

_MAX_NOTES = 8
_MAX_REASON = 120
_COLOUR: dict[NodeState, str] = {"bad": COLOURS["fail"], "not measured": COLOURS["missing"], "healthy": COLOURS["pass"]}
_NEXT: dict[NodeState, str] = {
    "bad": "--drain-list prints how to take bad nodes out of service; after a repair measure them again",
    "not measured": "measure them with pybench run node_check, and give their runs beside the others",
    "suspect": "measure the suspect again and give both runs, or both pairs: 5 % slower in both is bad, since hosts of "
    "one kind differ by less",
    "not compared": "three nodes of one kind can be compared; --across KEY lets them differ in a key",
}
_REBUILD = (
    "give the folders of runs whose file has no attempts' medians, or files rebuilt from them with pybench report RUN "
    "--format json -o FILE; without a folder measure again"
)


def render(result: FleetResult, runs: Iterable[RunFigures], *, width: int = 80, color: bool = False) -> str:
    """Draw it. ``runs`` are all that were read."""
    out = Paper(width, color=color)
    names = labels_of_runs(runs)
    _head(out, result)
    for state in BY_IMPORTANCE:
        _of_state(out, state, result, names)
    if result.notes:
        out.print()
    for text in result.notes[:_MAX_NOTES]:
        hanging(out, f"note: {text}")
    if (more := len(result.notes) - _MAX_NOTES) > 0:
        hanging(out, f"note: {more} more")
    out.print()
    # Pairs without runs: three nodes, or a key, would not let them be compared.
    if result.state in _NEXT and (result.suite or result.state != "not compared"):
        rebuilt = {NO_MEDIANS in node.reason for node in result.nodes if node.state == result.state}
        steps = [_NEXT[result.state]] * (rebuilt != {True}) + [_REBUILD] * (True in rebuilt)
        hanging(out, f"next: {'; '.join(steps)}")
    counts = [(state, sum(node.state == state for node in result.nodes)) for state in BY_IMPORTANCE]
    counted_states = ", ".join(f"{count} {state}" for state, count in counts if count) or "no node"
    links = f", {plural(len(result.links), 'slow link')}" if result.links else ""
    word, style = _word(result.state)
    hanging(out, f"verdict: {word} - of {plural(len(result.nodes), 'node')}: {counted_states}{links}", style=style)
    return out.text()


def drain_list(result: FleetResult) -> Iterator[str]:
    """A command for each bad node, as ``scontrol`` takes it, quoted for a shell. Nothing is drained by printing it."""
    for node in result.nodes:
        if node.state == "bad":
            reason = printable(f"pybench: {'; '.join(map(_short, node.symptoms))}")
            shown = shlex.quote(cut(reason, _MAX_REASON))
            yield f"scontrol update NodeName={shlex.quote(node.name)} State=DRAIN Reason={shown}"


def _head(out: Console, result: FleetResult) -> None:
    subject = f"{result.suite or 'pairs'} on {plural(len(result.nodes), 'node')}"
    out.print(Text.assemble((printable(f"{subject}: "), "bold"), _word(result.state)))
    parts = []
    if result.num_compared:
        parts.append(f"{plural(result.num_compared, 'run')}{_kind(result)}")
    if result.num_pairs:
        parts.append(f"{plural(result.num_pairs, 'measurement')} of pairs")
    parts.append(f"smallest effect {plain(100 * result.effects.default)} %")
    hanging(out, "; ".join(parts), style="dim")
    if result.groups:
        parts = []
        for group in result.groups:
            gpu = "" if group.gpu_fraction is None else f" (one GPU {short_percent(group.gpu_fraction)})"
            parts.append(f"{group.name} {short_percent(group.detectable_fraction)}{gpu}")
        hanging(out, f"found with 95 % power: {', '.join(parts)} slower", style="dim")
    for group in result.groups:
        if group.slower and group.slower_fraction is not None:
            percent = short_percent(-group.slower_fraction)
            hanging(out, f"two groups in {group.name}: {node_ranges(group.slower)} {percent} below the others")
    for text in result.wanted:
        hanging(out, f"across: {text}")


def _kind(result: FleetResult) -> str:
    """The GPUs of the compared nodes, such as ``1 to 4 x NVIDIA H200``, and the driver if it is one."""
    kinds, counts = {name for gpus in result.gpus for name in gpus}, sorted({len(gpus) for gpus in result.gpus})
    if len(kinds) == 1 and len(counts) > 1:
        gpus = f"{counts[0]} to {counts[-1]} x {min(kinds)}"
    else:
        gpus = " or ".join(filter(None, map(counted, result.gpus)))
    driver = [f"driver {name}" for name in key_values(result.keys, "driver")[:1]]
    parts = [*([gpus] if gpus else []), *driver]
    return f" of {', '.join(parts)}" if parts else ""


def _of_state(out: Console, state: NodeState, result: FleetResult, names: Mapping[str, str]) -> None:
    nodes = [node for node in result.nodes if node.state == state]
    links = [link for link in result.links if link.state == state]
    if nodes or links:
        out.print()
    by_reason: dict[str, list[str]] = {}
    for node in nodes:
        if node.symptoms:
            out.print(Text.assemble(_word(state), printable(f": {node.name}")))
        else:
            by_reason.setdefault(node.reason, []).append(node.name)
        for symptom in node.symptoms:
            hanging(out, f"  {_symptom_text(symptom, names)}")
    for link in links:
        out.print(Text.assemble(_word(state), f": link {link.nodes[0]} - {link.nodes[1]}"))
        rail, times = "" if link.rail is None else f", rail {link.rail}", plural(link.num_low, "measurement")
        slower = f"{-100 * link.fraction:.1f} % slower than other pairs, in {times}; both reach others"
        hanging(out, f"  {link.metric}{rail}: {slower}")
    for reason, node_names in by_reason.items():
        hanging(out, f"{state}: {node_ranges(node_names)}{f': {reason}' if reason else ''}")


def _symptom_text(symptom: Symptom, names: Mapping[str, str]) -> str:
    if not symptom.group:
        return symptom.text
    parts = []
    if symptom.row is not None:
        at = names.get(symptom.row.point_id, symptom.row.point_id)
        value, usual = value_text(symptom.value, symptom.unit), value_text(symptom.usual, symptom.unit)
        parts.append(f"{value} for {usual} at {at}")
        if symptom.num_measured > 1:
            parts.append(f"in {symptom.num_low} of {symptom.num_measured} runs")
    return f"{_short(symptom)}: {'; '.join(filter(None, (*parts, symptom.text)))}"


def _short(symptom: Symptom) -> str:
    if not symptom.group:
        return symptom.text
    subject = f"{symptom.gpu}: {symptom.group}" if symptom.gpu else symptom.group
    return subject if symptom.fraction is None else f"{subject} {-100 * symptom.fraction:.1f} % slower"


def _word(state: NodeState) -> tuple[str, str]:
    return state, _COLOUR.get(state, COLOURS["inconclusive"])
