"""Values of ``pybench fleet check``: nodes of one kind compared with each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pybench.model.figures import FigureKey, RunFigures, SmallestEffects
from pybench.model.record import GpuState

NodeState = Literal["bad", "not measured", "suspect", "not compared", "healthy"]
"""By importance. Bad: far below the others in two measurements, or a check of its own failed. Suspect: below the
others. Not compared: its keys differ, or there are too few nodes. Healthy: all figures of the others, among theirs."""

EXIT_CODES: dict[NodeState, int] = {"bad": 1, "not measured": 1, "suspect": 4, "not compared": 4, "healthy": 0}
BY_IMPORTANCE: tuple[NodeState, ...] = tuple(EXIT_CODES)


class GpuOfNode(NamedTuple):
    """One GPU of a fleet."""

    node: str
    uuid: str


@dataclass(frozen=True, kw_only=True)
class NodeRun:
    """One run of one node.

    ``figures`` has keys without UUIDs: they are equal for nodes of one kind. ``gpus`` has the median of each attempt of
    each GPU by UUID, where the run's folder has them; ``indices`` are the GPUs' places in the machine, ``states`` their
    clocks and temperatures at each point. ``faults`` are failed checks of the run itself, ``warnings`` those to watch.
    """

    node: str
    figures: RunFigures
    uuids: tuple[str, ...] = ()
    gpus: dict[FigureKey, dict[str, tuple[float, ...]]] = field(default_factory=dict)
    indices: dict[str, int] = field(default_factory=dict)
    states: dict[str, tuple[GpuState, ...]] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PairFigure:
    """A metric of two nodes measured together; the median of ``values`` counts.

    ``rail`` is the number of their network cards, ``work`` the point, where one metric has several.
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
class Symptom:
    """One reason why a node is not healthy.

    ``group`` is a group of figures, or ``pairs``; it is empty for a check of the node itself. ``gpu`` names the one GPU
    that is slow. ``fraction`` is the speed over that of the others, less 1; ``p`` its probability by chance. ``value``
    and ``usual`` are the node's figure and that of the others, in ``unit``, at ``row``. ``num_low`` of ``num_measured``
    runs or pairs show it. ``is_bad``: the node is bad by this alone. ``text`` has more details.
    """

    group: str = ""
    text: str = ""
    gpu: str | None = None
    fraction: float | None = None
    p: float | None = None
    row: FigureKey | None = None
    value: float | None = None
    usual: float | None = None
    unit: str = ""
    num_low: int = 1
    num_measured: int = 1
    is_bad: bool = False


@dataclass(frozen=True, kw_only=True)
class FleetNode:
    """One node: ``reason`` is why it was not measured or not compared, ``symptoms`` why it is suspect or bad."""

    name: str
    state: NodeState
    num_runs: int = 0
    symptoms: tuple[Symptom, ...] = ()
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class FleetLink:
    """A slow link: both nodes reach others at the usual speed. ``num_low`` measurements of the pair show it."""

    nodes: tuple[str, str]
    state: Literal["bad", "suspect"]
    fraction: float
    p: float
    metric: str
    rail: int | None = None
    num_low: int = 1


@dataclass(frozen=True, kw_only=True)
class GroupSpread:
    """Spread between nodes in a group of figures, and the shortfall that is found with 95 % power.

    ``gpu_fraction`` is the shortfall of one GPU, ``None`` where GPUs are not measured one by one. Where the nodes fall
    into two groups, ``slower`` are those of the slower one and ``slower_fraction`` is its speed over the other, less 1.
    """

    name: str
    num_nodes: int
    spread_fraction: float
    detectable_fraction: float
    gpu_fraction: float | None = None
    slower: tuple[str, ...] = ()
    slower_fraction: float | None = None


@dataclass(frozen=True, kw_only=True)
class FleetResult:
    """A fleet, the most important nodes first.

    ``state`` is the state of the worst node or link. ``notes`` name omissions and undecided points, with reasons.
    ``keys`` are equal in all ``num_compared`` compared runs; ``gpus`` has each list of GPU names once; ``wanted`` are
    the differences that are allowed.
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
    effects: SmallestEffects = field(default_factory=SmallestEffects)
