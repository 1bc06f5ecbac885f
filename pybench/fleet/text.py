"""The nodes of a fleet for the terminal: the state, each node with its evidence, links, what was left out."""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from pybench.core.node_ranges import node_ranges
from pybench.core.numbers import plain, short_percent
from pybench.fleet.decision import BY_IMPORTANCE
from pybench.fleet.values import Evidence, FleetLink, FleetNode, FleetResult, GroupSpread, NodeState
from pybench.model.figures import NO_MEDIANS, PointFigures, key_values
from pybench.model.plural import counted, plural
from pybench.report.text.change_words import value_text
from pybench.report.text.labels import labels_of_runs
from pybench.report.text.printable import cut, printable
from pybench.report.text.table import COLOURS, console, hanging, without_trailing_spaces

_MOST_NOTES = 8
_MAX_REASON = 120
_COLOUR: dict[NodeState, str] = {
    "bad": COLOURS["fail"],
    "not measured": COLOURS["missing"],
    "healthy": COLOURS["pass"],
}
_NEXT: dict[NodeState, str] = {
    "bad": "--drain-list prints how to take bad nodes out of service; after a repair measure them again",
    "not measured": "measure them with pybench run node_check, and give their runs beside the others",
    "suspect": "measure the suspect again, and give both runs, or both pairs, of it: a second one decides",
    "not compared": "three nodes of one kind can be compared; --across KEY lets them differ in a key",
}


_REBUILD = (
    "give the folders of runs whose file has no attempts' medians, or files rebuilt from them with pybench report RUN "
    "--format json -o FILE; without a folder measure again"
)


def render(result: FleetResult, points: Sequence[PointFigures], *, width: int = 80, color: bool = False) -> str:
    """Draw it. ``points`` are those of all runs."""
    stream = io.StringIO()
    out = console(stream, width, color=color)
    names = labels_of_runs(points)
    _head(out, result)
    for state in BY_IMPORTANCE:
        nodes = [node for node in result.nodes if node.state == state]
        links = [link for link in result.links if link.state == state]
        if nodes or links:
            out.print()
            _of_state(out, state, nodes, links, names)
    _notes(out, result.notes)
    out.print()
    # Without runs there is nothing that three nodes, or a key, would let be compared.
    if result.state in _NEXT and (result.suite or result.state != "not compared"):
        hanging(out, f"next: {'; '.join(_next(result))}")
    out.print(Text.assemble("verdict: ", _word(result.state), f" - {_counts(result)}"), soft_wrap=True)
    return without_trailing_spaces(stream.getvalue())


def drain_list(result: FleetResult) -> Iterator[str]:
    """A command for each bad node, as ``scontrol`` takes it, quoted for a shell. Nothing is drained by printing it."""
    for node in result.nodes:
        if node.state == "bad":
            reason = printable(f"pybench: {'; '.join(_short(one) for one in node.evidence)}")
            shown = shlex.quote(cut(reason, _MAX_REASON))
            yield f"scontrol update NodeName={shlex.quote(node.name)} State=DRAIN Reason={shown}"


def _next(result: FleetResult) -> Iterator[str]:
    """What to do about the worst state; nodes that were measured, and whose file alone lacks figures, need no run."""
    rebuilt = {NO_MEDIANS in node.reason for node in result.nodes if node.state == result.state}
    if rebuilt != {True}:
        yield _NEXT[result.state]
    if True in rebuilt:
        yield _REBUILD


def _head(out: Console, result: FleetResult) -> None:
    what = result.suite or ("pairs" if result.num_pairs else "barriers")
    subject = f"{what} on {plural(len(result.nodes), 'node')}"
    out.print(Text.assemble((printable(f"{subject}: "), "bold"), _word(result.state)))
    if measured := "; ".join(_measured(result)):
        hanging(out, measured, style="dim")
    if result.groups:
        hanging(out, f"found with 95 % power: {', '.join(map(_finds, result.groups))} slower", style="dim")
    for text in result.wanted:
        hanging(out, f"across: {text}")


def _measured(result: FleetResult) -> Iterator[str]:
    if result.num_compared:
        yield f"{plural(result.num_compared, 'run')}{_kind(result)}"
    if result.num_pairs:
        yield f"{plural(result.num_pairs, 'measurement')} of pairs"
    if result.num_barriers:
        yield plural(result.num_barriers, "barrier")
    yield f"smallest effect {plain(100 * result.effects.default)} %"


def _finds(group: GroupSpread) -> str:
    one = "" if group.gpu_fraction is None else f" (one GPU {short_percent(group.gpu_fraction)})"
    return f"{group.name} {short_percent(group.detectable_fraction)}{one}"


def _kind(result: FleetResult) -> str:
    """The GPUs that the compared nodes have, and the driver if it is one."""
    gpus = _gpus(result.gpus)
    parts = [gpus] if gpus else []
    if driver := key_values(result.keys, "driver"):
        parts.append(f"driver {driver[0]}")
    return f" of {', '.join(parts)}" if parts else ""


def _gpus(nodes: Sequence[Sequence[str]]) -> str:
    """What each node has, such as ``1 to 4 x NVIDIA H200``; kinds that differ as alternatives."""
    kinds, counts = {name for own in nodes for name in own}, sorted({len(own) for own in nodes})
    if len(kinds) == 1 and len(counts) > 1:
        return f"{counts[0]} to {counts[-1]} x {min(kinds)}"
    return " or ".join(filter(None, map(counted, nodes)))


def _of_state(
    out: Console, state: NodeState, nodes: Sequence[FleetNode], links: Sequence[FleetLink], names: Mapping[str, str]
) -> None:
    if any(node.evidence for node in nodes) or links:
        for node in nodes:
            out.print(Text.assemble(_word(state), printable(f": {node.name}")))
            for one in node.evidence:
                hanging(out, f"  {_evidence(one, names)}")
        for link in links:
            out.print(Text.assemble(_word(state), f": link {link.nodes[0]} - {link.nodes[1]}"))
            hanging(out, f"  {_link(link)}")
        return
    by_reason: dict[str, list[str]] = {}
    for node in nodes:
        by_reason.setdefault(node.reason, []).append(node.name)
    for reason, own in by_reason.items():
        hanging(out, f"{state}: {node_ranges(own)}{f': {reason}' if reason else ''}")


def _evidence(one: Evidence, names: Mapping[str, str]) -> str:
    if not one.group:
        return one.text
    figure = ""
    if one.row is not None:
        at = names.get(one.row.point_id, one.row.point_id)
        figure = f"{value_text(one.value, one.unit)} for {value_text(one.usual, one.unit)} at {at}"
    runs = f"in {one.num_separate} of {one.num_measured} runs" if one.row is not None and one.num_measured > 1 else ""
    return f"{_short(one)}: {'; '.join(filter(None, (figure, runs, one.text)))}"


def _short(one: Evidence) -> str:
    if not one.group:
        return one.text
    subject = f"{one.gpu}: {one.group}" if one.gpu else one.group
    return subject if one.fraction is None else f"{subject} {-100 * one.fraction:.1f} % slower"


def _link(link: FleetLink) -> str:
    rail = "" if link.rail is None else f", rail {link.rail}"
    times = plural(link.num_separate, "measurement")
    return f"{link.metric}{rail}: {-100 * link.fraction:.1f} % slower than other pairs, in {times}; both reach others"


def _notes(out: Console, notes: Sequence[str]) -> None:
    if not notes:
        return
    out.print()
    for text in notes[:_MOST_NOTES]:
        hanging(out, f"note: {text}")
    if (more := len(notes) - _MOST_NOTES) > 0:
        hanging(out, f"note: {more} more")


def _counts(result: FleetResult) -> str:
    found = [(state, sum(node.state == state for node in result.nodes)) for state in BY_IMPORTANCE]
    text = ", ".join(f"{count} {state}" for state, count in found if count) or "no node"
    slow = len(result.links)
    links = f", {plural(slow, 'slow link')}" if slow else ""
    return f"of {plural(len(result.nodes), 'node')}: {text}{links}"


def _word(state: NodeState) -> tuple[str, str]:
    return state, _COLOUR.get(state, COLOURS["inconclusive"])
