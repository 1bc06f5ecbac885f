"""Nodes of one kind held against each other: what ``pybench fleet check`` reads and shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pybench.model.change import SmallestEffects
from pybench.model.figures import Row, RunFigures
from pybench.model.gpu_state import GpuState

NodeState = Literal["bad", "suspect", "not measured", "not compared", "healthy"]
"""Two separate measurements show it slow, or a check of its own failed; one shows it; figures are absent; it is unlike
the others, or there are too few of them; every figure that the others have lies among theirs."""


class GpuOfNode(NamedTuple):
    """One GPU of a fleet."""

    node: str
    uuid: str


@dataclass(frozen=True, kw_only=True)
class NodeRun:
    """One run of one node.

    ``figures`` has keys without UUIDs, so that they are equal for nodes of one kind. ``gpus`` has the attempts' medians
    of each GPU by UUID, where the run's folder has them; ``indices`` are their places in the machine, ``states`` how
    they stood at each point. ``faults`` are checks of the run itself that failed, ``warnings`` those to watch.
    """

    node: str
    figures: RunFigures
    uuids: tuple[str, ...] = ()
    gpus: dict[Row, dict[str, tuple[float, ...]]] = field(default_factory=dict)
    indices: dict[str, int] = field(default_factory=dict)
    states: dict[str, tuple[GpuState, ...]] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PairFigure:
    """What two nodes reached together: the median of a metric's values.

    ``rail`` is that of their network cards, ``work`` names what they did where one metric is of several works.
    """

    nodes: tuple[str, str]
    metric: str
    values: tuple[float, ...]
    round: int | None = None
    rail: int | None = None
    message_bytes: int | None = None
    work: str = ""

    @property
    def kind(self) -> tuple[str, str, int | None, int | None]:
        """Pairs of one kind are compared."""
        return self.metric, self.work, self.message_bytes, self.rail


@dataclass(frozen=True, kw_only=True)
class Barriers:
    """When each node arrived at each of many barriers, in seconds on clocks that are joined to ``clock_bound_s``."""

    clock_bound_s: float
    arrivals_s: tuple[dict[str, float], ...]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One reason why a node is not healthy.

    ``group`` names what is slow: a group of figures, ``pairs`` or ``barriers``; it is empty for a check of the node's
    own. ``gpu`` is the one GPU that it is about, with its index. ``fraction`` is the speed over that of the others less
    1, ``p`` its probability by chance; ``value`` and ``usual`` are the figure and that of the others in ``unit``, at
    ``row``. ``num_separate`` of ``num_measured`` separate measurements show it; ``is_certain`` is what needs no second
    one. ``text`` is what else is known.
    """

    group: str = ""
    text: str = ""
    gpu: str | None = None
    fraction: float | None = None
    p: float | None = None
    row: Row | None = None
    value: float | None = None
    usual: float | None = None
    unit: str = ""
    num_separate: int = 1
    num_measured: int = 1
    is_certain: bool = False


@dataclass(frozen=True, kw_only=True)
class FleetNode:
    """One node: ``reason`` is why it was not measured or not compared, ``evidence`` why it is suspect or bad."""

    name: str
    state: NodeState
    num_runs: int = 0
    evidence: tuple[Evidence, ...] = ()
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class FleetLink:
    """A link between two nodes that is slow while both reach others as usual, in so many separate measurements."""

    nodes: tuple[str, str]
    state: Literal["bad", "suspect"]
    fraction: float
    p: float
    metric: str
    rail: int | None = None
    num_separate: int = 1


@dataclass(frozen=True, kw_only=True)
class GroupSpread:
    """How far like nodes scatter in a group of figures, and the shortfall that is found with 95 % power.

    ``gpu_fraction`` is that of one GPU, ``None`` where GPUs are not known one by one.
    """

    name: str
    num_nodes: int
    spread_fraction: float
    detectable_fraction: float
    gpu_fraction: float | None = None


@dataclass(frozen=True, kw_only=True)
class FleetResult:
    """A fleet, the most important nodes first.

    ``state`` is that of the worst node or link. ``notes`` are what was left out, and what could not be decided, each
    with its reason. ``keys`` are those that the ``num_compared`` runs which are compared agree in, ``gpus`` the names
    of each one's GPUs, equal lists once, ``wanted`` the differences that are allowed.
    """

    suite: str
    state: NodeState
    nodes: tuple[FleetNode, ...]
    links: tuple[FleetLink, ...] = ()
    groups: tuple[GroupSpread, ...] = ()
    notes: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    keys: dict[str, str] = field(default_factory=dict)
    gpus: tuple[tuple[str, ...], ...] = ()
    num_compared: int = 0
    num_pairs: int = 0
    num_barriers: int = 0
    effects: SmallestEffects = field(default_factory=SmallestEffects)
