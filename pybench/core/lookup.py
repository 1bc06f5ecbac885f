"""The row of an expected table for a point.

All keys and settings of a row must match; a row without NVLink SHARP is a floor for a machine with it. Among matching
rows the most named settings win, then the closest machine (its kind, then ``gpu``, then ``any``), then the most named
keys, then measured before published. Published claims have a separate lookup: they are shown next to measured
figures, and are never part of a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pybench.core.flops import model_class
from pybench.core.verdict import RowStatistics
from pybench.model.decoder_shape import DecoderShape
from pybench.model.machine import Machine, nvls_of
from pybench.model.results import ClaimResult, ClaimState, Estimate, Results
from pybench.model.suite import ANY, ANY_GPU, ExpectedRow, ExpectedTable, FigureRow, RatioRow
from pybench.model.workloads.registry import METRICS
from pybench.model.workloads.settings import NODES

_KEYS = ("fabric", "backend", "model_class")
_KINDS = ("claim", "published", "measured")
NO_FIGURE = "has no figure for"
"""Of a table, in the reason why a point is not judged."""
NO_TABLE = "the suite shows it and names no table to judge it by"
"""Why a ratio without a table is not judged."""
SPARING = ("prefix_caching",)
"""Settings that spare work: a figure holds for points with them only where its row names them."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """Keys of a point, to compare with a row's."""

    machine: str
    fabric: str
    backend: str
    model_class: str
    workload: str
    metric: str
    settings: Mapping[str, object]
    nodes: int = 1
    nvls: str = "off"


def context_of(
    machine: Machine | Results, metric: str, settings: Mapping[str, object], shape: DecoderShape | None
) -> Context:
    """The context of a metric of a point with these settings; ``shape`` is the model's, ``None`` without one.

    Over several nodes the fabric is what joins them; where that is not known, no row fits.
    """
    nodes = int(str(settings.get(NODES, 1)))
    if isinstance(machine, Results):
        kind, fabric, network = machine.machine, machine.provenance.fabric, None
        nvls = nvls_of(machine.provenance.gpus, machine.provenance.environment or {})
    else:
        kind, fabric, network, nvls = machine.kind, machine.fabric, machine.network, machine.nvls
    if "NCCL_NVLS_ENABLE=0" in str(settings.get("environment") or "").split():
        nvls = "off"
    return Context(
        machine=kind,
        fabric=(fabric if nodes == 1 else network) or "",
        nodes=nodes,
        backend=str(settings["backend"]),
        model_class=model_class(shape) if shape else "",
        workload=str(settings["workload"]),
        metric=metric,
        settings=settings,
        nvls=nvls,
    )


def ratio_row(
    table: ExpectedTable, context: Context, count: int, baseline_count: int, *, claims: bool = False
) -> RatioRow | None:
    """The closest ratio of these counts, or ``None``."""
    counts = (count, baseline_count)
    rows = [row for row in table.rows if isinstance(row, RatioRow) and (row.count, row.baseline_count) == counts]
    fitting = (row for row in rows if _fits(row, context, claims=claims))
    return max(fitting, key=lambda row: (len(row.where), _closeness(row)), default=None)


def figure_row(table: ExpectedTable, context: Context, num_gpus: int, *, claims: bool = False) -> FigureRow | None:
    """The closest figure of the metric itself, or ``None``.

    With equally many named settings, a figure of this number of GPUs goes before a figure of each GPU.
    """
    fitting = [
        row
        for row in table.rows
        if isinstance(row, FigureRow)
        and (row.count <= num_gpus if row.per_gpu else row.count == num_gpus)
        and not any(context.settings.get(name) and name not in row.where for name in SPARING)
        and _fits(row, context, claims=claims)
    ]
    return max(fitting, key=lambda row: (len(row.where), not row.per_gpu, _closeness(row)), default=None)


def _fits(row: ExpectedRow, context: Context, *, claims: bool) -> bool:
    machines = {ANY, context.machine} | (set() if context.machine == "cpu" else {ANY_GPU})
    return (
        (row.kind == "claim") == claims
        and (row.workload, row.metric) == (context.workload, context.metric)
        and row.machine in machines
        and row.nodes == context.nodes
        and all(getattr(row, key) in {ANY, getattr(context, key)} for key in _KEYS)
        and all(context.settings.get(name) == value for name, value in row.where.items())
        and (row.nvls != "on" or context.nvls == "on")
    )


def no_row(table: str, machine: Machine, nodes: int) -> str:
    """Reason for a point without a row, on ``nodes`` hosts."""
    if nodes == 1:
        return f"table {table} {NO_FIGURE} this point on {machine.kind}"
    if machine.network is None:
        return f"what joins the {nodes} nodes is not known: a table's row is for infiniband, roce or ethernet"
    return f"table {table} {NO_FIGURE} {nodes} nodes over {machine.network}"


def _closeness(row: ExpectedRow) -> tuple[int, int, int]:
    """Sorts the rows that fit; the greatest is the one to use."""
    machine = 0 if row.machine == ANY else 1 if row.machine == ANY_GPU else 2
    named = sum(getattr(row, key) != ANY for key in _KEYS) + (ANY, "off", "on").index(row.nvls)
    return machine, named, _KINDS.index(row.kind)


def claim_result(
    benchmark: str, row: ExpectedRow, table: str, of: tuple[str, str | None], value: Estimate, evidence: RowStatistics
) -> ClaimResult:
    """One claim of a table, with the measured figure ``of`` a point, or of a point and its baseline."""
    claim = ClaimResult(
        benchmark=benchmark,
        metric=row.metric,
        point_id=of[0],
        baseline_id=of[1],
        found=value,
        minimum=row.limits[0],
        maximum=row.limits[1],
        state="open",
        source=row.source,
        table=table,
    )
    return judged_claim(claim, evidence)


def judged_claim(claim: ClaimResult, evidence: RowStatistics) -> ClaimResult:
    """*kept* if the whole interval is on the claimed side of the limit, *not kept* if all of it is beyond.

    Else *open*, with the attempts that would decide it. A figure better than a table's claim keeps it.
    """
    more = METRICS[claim.metric].higher_is_better if claim.table is not None else claim.minimum is not None
    limit = claim.minimum if more else claim.maximum
    _, low, high = evidence.interval
    state: ClaimState = "open"
    if low is not None and high is not None:
        if limit is None or (low >= limit if more else high <= limit):
            state = "kept"
        elif high < limit if more else low > limit:
            state = "not kept"
    needed = (
        evidence.decide(*((limit, None) if more else (None, limit))).attempts_to_decide if state == "open" else None
    )
    return replace(claim, found=replace(claim.found, low=low, high=high), state=state, attempts_to_decide=needed)
