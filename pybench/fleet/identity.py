"""Which runs are of which node: no run twice, no name for two machines, no machine under two names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from pybench.fleet.values import NodeRun

# The shipped suite that measures every GPU and link by itself.
_NODES_OWN = "node_check"


@dataclass
class Identified:
    """Runs that are kept, nodes that have none with the reason, and what was left out beside."""

    runs: list[NodeRun] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def identified(runs: Sequence[NodeRun]) -> Identified:
    """Keep each run once, and leave out nodes whose name or GPUs are not theirs alone."""
    found = Identified()
    by_node: dict[str, list[NodeRun]] = {}
    for one in runs:
        own = by_node.setdefault(one.node, [])
        if any(_same_run(one, other) for other in own):
            found.notes.append(f"{one.node}: run {one.figures.run_id} was given twice; it counts once")
        else:
            own.append(one)
    owners: dict[str, str] = {}
    for node, own in by_node.items():
        if strangers := {one.uuids for one in own if not _overlap(one, own[0])}:
            first = (own[0].uuids or ("a CPU",))[0]
            other = (next(iter(strangers)) or ("a CPU",))[0]
            found.refused[node] = f"two machines have this name ({first} and {other}); give each with NODE=PATH"
            continue
        uuids = dict.fromkeys(uuid for one in own for uuid in one.uuids)
        if twin := next((owners[uuid] for uuid in uuids if uuid in owners), None):
            found.refused[node] = f"has the GPUs of {twin}: one machine under two names; give its runs one name"
            continue
        owners.update(dict.fromkeys(uuids, node))
        found.runs += own
    return found


def usual_suite(runs: Sequence[NodeRun]) -> str:
    """The suite that nodes are judged by: the node's own check where half of them have it, else what most have.

    Beside it nodes may have runs of anything, which show less of each GPU and link. Empty without any run.
    """
    pairs = {(one.figures.suite, one.node) for one in runs}
    counts = Counter(suite for suite, _ in sorted(pairs))
    num_nodes = len({node for _, node in pairs})
    if counts and 2 * counts[_NODES_OWN] >= num_nodes:
        return _NODES_OWN
    return counts.most_common(1)[0][0] if counts else ""


def _same_run(one: NodeRun, other: NodeRun) -> bool:
    return (one.figures.run_id, one.figures.created_utc) == (other.figures.run_id, other.figures.created_utc)


def _overlap(one: NodeRun, other: NodeRun) -> bool:
    """Whether two runs may be of one machine: a GPU may have been exchanged, not all of them."""
    return one.uuids == other.uuids or bool({*one.uuids} & {*other.uuids})
