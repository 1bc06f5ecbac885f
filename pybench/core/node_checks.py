"""Every check of the node: GPUs against others of their kind, results that must repeat, and all checks of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean, median

from pybench.core.measurements import Measurements
from pybench.core.node_driver import fabric, memory_errors, nvlinks, pcie, throttling, xids
from pybench.core.node_ranks import ALONE, PointRecords, judge_alike, node_check, shares_of_others, shown
from pybench.core.numbers import quantity, short_percent, signed_percent
from pybench.core.statistics.interval import Samples, location
from pybench.model.machine import Machine
from pybench.model.record import Record
from pybench.model.results import Estimate, NodeCheck
from pybench.model.text import listed
from pybench.model.verdict import Verdict
from pybench.model.workloads.registry import LOADS, SLOWER_FRACTIONS
from pybench.model.workloads.settings import NodeSettings

SLOWEST = "slowest"
"""The check's name, also of a GPU that is only undecided."""

# A CPU rank shares its core with the rest of the machine.
_SLOWER_FRACTION_ON_CPU = 0.50
SLOWER_FRACTION = 0.10  # of nodes, for figures without their own


def slowest(point: PointRecords) -> Iterator[NodeCheck]:
    """Every GPU that is, or may be, slower than the median of the others of its kind by more than is usual.

    Where all of a kind pass, the slowest. A GPU without another of its kind neither passes nor fails.
    """
    for metric, usual in SLOWER_FRACTIONS.items():
        ranks = point.values(metric)
        if len(ranks) < 2:  # noqa: PLR2004 - no other GPU to compare with
            continue
        tolerance = usual if point.on_gpu else _SLOWER_FRACTION_ON_CPU
        for alike in point.by_device(ranks):
            if len(alike) == 1:
                name, reason = point.name(alike[0]), f"{metric}: {ALONE}"
                yield node_check(
                    SLOWEST, name, "no_expectation", reason, point=point, limit=-tolerance, unit="fraction"
                )
                continue
            shares = {
                rank: shares_of_others(ranks[rank], [ranks[other] for other in alike if other != rank])
                for rank in alike
            }
            judged = judge_alike(point.point, shares, tolerance)
            for rank in shown(judged):
                share = judged[rank]
                reason = f"{metric}: {share} against the others, allowed -{short_percent(tolerance)}{share.what_next}"
                yield point.slower(SLOWEST, point.name(rank), share, tolerance, reason)


# Healthy NVLinks of one kind were 3 % apart on an H200 host, 1.2 % on five others.
_SLOWER_FRACTION_OVER_NVLINK = 0.07
# Sockets, switches and NUMA nodes lie on every other way.
_SLOWER_FRACTION_OVER_PCIE = 0.20
# A GPU that is slow as a whole spoils all its links, of three GPUs' most; two that are well share a link each way.
_NUM_BEST = 2


@dataclass(frozen=True)
class _Link:
    """One direction between two ranks; ``kind`` as ``nvidia-smi topo -m`` names it, ``ends`` the devices' names."""

    sender: int
    receiver: int
    kind: str
    ends: tuple[str, str]
    bytes_per_s: Samples


def slow_links(point: PointRecords) -> Iterator[NodeCheck]:
    """Every link that is slower than the best others of its kind by more than is usual, or may be; else the slowest.

    Links of a kind join devices of the same names: others may be narrower, or lack direct copies.
    A GPU that all links of a kind touch is compared with itself alone: then the reason states that only an expected
    table shows whether it is slow as a whole.
    """
    links = _matrix(point)
    for sort in dict.fromkeys((link.kind, link.ends) for link in links):
        alike = [link for link in links if (link.kind, link.ends) == sort]
        if len(alike) < 2:  # noqa: PLR2004 - nothing to be compared with
            continue
        over_fabric = _SLOWER_FRACTION_OVER_NVLINK if alike[0].kind.startswith("NV") else _SLOWER_FRACTION_OVER_PCIE
        tolerance = over_fabric if point.on_gpu else _SLOWER_FRACTION_ON_CPU
        best = sorted(alike, key=lambda link: location(link.bytes_per_s), reverse=True)[: _NUM_BEST + 1]
        others = [[other.bytes_per_s for other in best if other is not link][:_NUM_BEST] for link in alike]
        shares = {index: shares_of_others(link.bytes_per_s, others[index]) for index, link in enumerate(alike)}
        judged = judge_alike(point.point, shares, tolerance)
        common = set.intersection(*({link.sender, link.receiver} for link in alike))
        names = listed(point.name(rank) for rank in sorted(common))
        blind_spot = f"; all of them touch {names}: slow as a whole shows against a table alone" if common else ""
        for index in shown(judged):
            link, share = alike[index], judged[index]
            speed = quantity(Estimate(value=location(link.bytes_per_s), low=None, high=None, unit="bytes/s"))
            reason = (
                f"{link.kind}, {speed}: {share} against the best others of its kind, allowed "
                f"-{short_percent(tolerance)}{share.what_next}{blind_spot}"
            )
            subject = f"{point.name(link.sender)} → {point.name(link.receiver)}"
            yield point.slower("link", subject, share, tolerance, reason)


def _matrix(point: PointRecords) -> list[_Link]:
    """Links with the topology's word for their kind; ranks have the numbers of the machine's GPUs."""
    links, topology = [], point.machine.topology
    for receiver in range(point.point.num_gpus):
        for sender, bytes_per_s in point.values(f"link_to_{receiver}_bytes_per_s").items():
            known = point.on_gpu and max(sender, receiver) < len(topology)
            ends = point.device_name(sender), point.device_name(receiver)
            links.append(_Link(sender, receiver, topology[sender][receiver] if known else "link", ends, bytes_per_s))
    return links


_CLOCK = "clock"
_SLOWED_FRACTION = 0.05
"""A lower clock counts on a GPU whose throughput is at least so much below the others'.

Readings are momentary: two H200s at their power limit read 1,425 and 1,710 MHz in an attempt in which they were equally
fast.
"""


@dataclass(frozen=True, kw_only=True)
class _Sensor:
    """A reading of a rank in an attempt, and its limit against the others: at most a positive one, at least a negative.

    In ``unit``, where ``fraction`` is of the others' median, less one.
    """

    name: str
    noun: str
    unit: str
    limit: float
    read: Callable[[Record, int, str], float | None]

    def text(self, value: float) -> str:
        """With its sign."""
        return signed_percent(value) if self.unit == "fraction" else f"{value:+.0f} {self.unit}"

    def check(
        self, point: PointRecords, subject: str, verdict: Verdict, words: str, value: float | None = None
    ) -> NodeCheck:
        """The check of its readings of a point."""
        reason = f"{self.noun}: {words}"
        return node_check(
            self.name, subject, verdict, reason, point=point, value=value, limit=self.limit, unit=self.unit
        )


def _joules(record: Record, rank: int, uuid: str) -> float | None:
    """Power over speed: joules for a unit of work, whatever time it took."""
    gpus = record.energy.gpus if record.energy else ()
    power_w = next((gpu.mean_power_w for gpu in gpus if gpu.uuid == uuid), None)
    steps = record.ranks[rank].steps
    metric = next(name for name in LOADS if name in steps[0].values)
    return None if power_w is None else power_w / fmean(step.values[metric] for step in steps)


def _condition(name: str) -> Callable[[Record, int, str], float | None]:
    return lambda record, _rank, uuid: next((getattr(g, name) for g in record.conditions if g.uuid == uuid), None)


_SENSORS = (
    # Gains of power sensors differ by about 5 % either way between boards: two of them may differ by 10 %.
    _Sensor(name="power_at_equal_work", noun="joules for the same work", unit="fraction", limit=0.15, read=_joules),
    # In a row of air-cooled boards the last breathes what the first has warmed.
    _Sensor(name="temperature", noun="temperature", unit="°C", limit=15.0, read=_condition("temperature_c")),
    # The same as for matmul throughput, which follows the clock. See also _SLOWED_FRACTION.
    _Sensor(name=_CLOCK, noun="SM clock", unit="fraction", limit=-0.10, read=_condition("sm_clock_hz")),
)


def sensors(point: PointRecords) -> Iterator[NodeCheck]:
    """Joules for the same work, temperature and clock of each GPU while it multiplies, against others of its kind."""
    if not point.on_gpu or point.point.num_gpus < 2 or not any(map(point.values, LOADS)):  # noqa: PLR2004 - one GPU
        return
    for sensor in _SENSORS:
        readings: dict[int, float] = {}
        for rank in range(point.point.num_gpus):
            values = (sensor.read(record, rank, point.uuid(rank) or "") for record in point.records)
            if reading := median([value for value in values if value is not None] or [0.0]):
                readings[rank] = reading
        if len(readings) < point.point.num_gpus:
            yield sensor.check(point, "all GPUs", "no_expectation", "unknown for some GPU")
            continue
        for alike in point.by_device(readings):
            if len(alike) == 1:
                yield sensor.check(point, point.name(alike[0]), "no_expectation", ALONE)
            else:
                yield from _compare(point, sensor, {rank: readings[rank] for rank in alike})


def _compare(point: PointRecords, sensor: _Sensor, readings: dict[int, float]) -> Iterator[NodeCheck]:
    """Every GPU beyond the sensor's limit; where there is none, the GPU nearest to it."""
    differences = {}
    for rank, value in readings.items():
        others = median(other for place, other in readings.items() if place != rank)
        differences[rank] = value / others - 1 if sensor.unit == "fraction" else value - others
    excess = {rank: value / sensor.limit for rank, value in differences.items()}  # 1 at the limit, above it beyond
    failing = [rank for rank, share in excess.items() if share > 1]
    if sensor.name == _CLOCK:
        (values,) = (values for metric in LOADS if (values := point.values(metric)))
        speeds = {rank: median(step for steps in values[rank] for step in steps) for rank in readings}
        usual = {rank: median(speeds[other] for other in readings if other != rank) for rank in failing}
        failing = [rank for rank in failing if speeds[rank] <= (1 - _SLOWED_FRACTION) * usual[rank]]
    verdict: Verdict = "fail" if failing else "pass"
    for rank in failing or [max(excess, key=excess.__getitem__)]:
        value = differences[rank]
        words = f"{sensor.text(value)} against the others, allowed {sensor.text(sensor.limit)}"
        yield sensor.check(point, point.name(rank), verdict, words, value)


def checksums(point: PointRecords) -> Iterator[NodeCheck]:
    """Every GPU whose results change, or differ from the majority of GPUs of its name.

    Ranks multiply the same operands with the same library, so their results may be compared. GPUs that repeat their own
    results without a majority are named together: at least one of them is wrong.
    """
    sums = {rank: [*chain(*attempts)] for rank, attempts in point.values("checksum").items()}
    elements = {rank: sum(chain(*attempts)) for rank, attempts in point.values("mismatched_elements").items()}
    if not sums:
        return
    checks = [check for alike in point.by_device(sums) for check in _compare_checksums(point, alike, sums, elements)]
    whole = f"results repeat bit for bit, in {len(next(iter(sums.values())))} steps of each"
    yield from checks or [
        node_check("checksum", "all ranks", "pass", whole, point=point, value=0.0, limit=0.0, unit="steps")
    ]


def _compare_checksums(
    point: PointRecords, alike: Sequence[int], sums: Mapping[int, Sequence[float]], elements: Mapping[int, float]
) -> Iterator[NodeCheck]:
    """Of ranks of one kind: ``sums`` of all steps, and ``elements`` that differed from a rank's first result."""
    steady = [rank for rank in alike if len(set(sums[rank])) == 1 and not elements.get(rank)]
    votes = Counter(sums[rank][0] for rank in steady).most_common()
    tied = len(votes) > 1 and votes[0][1] == votes[1][1]
    if tied:
        names = ", ".join(map(point.name, steady))
        num_steps = float(sum(len(sums[rank]) for rank in steady))
        reason = "each repeats its own results, but they differ, and no majority shows which are wrong: add another GPU"
        yield node_check("checksum", names, "fail", reason, point=point, value=num_steps, limit=0.0, unit="steps")
    for rank in alike:
        usual = sums[rank][0] if tied or not votes else votes[0][0]
        wrong, differing = sum(value != usual for value in sums[rank]), elements.get(rank, 0.0)
        if wrong or differing:
            reason = (
                f"{wrong} of {len(sums[rank])} checksums differ from the usual one, "
                f"{differing:,.0f} elements from the same product's first result"
            )
            yield node_check(
                "checksum", point.name(rank), "fail", reason, point=point, value=float(wrong), limit=0.0, unit="steps"
            )


def nvls(point: PointRecords) -> Iterator[NodeCheck]:
    """Whether every rank's NCCL found NVLink SHARP, where fabric and environment allow it."""
    if point.machine.nvls != "on" or not (values := point.values("nvls")):
        return
    lacking = [point.name(rank) for rank, attempts in values.items() if not all(map(all, attempts))]
    missing = "its fabric is up, but NCCL found no NVLink SHARP (NVLS multicast is not available)"
    for name in lacking:
        yield node_check("nvls", name, "fail", missing, point=point, value=0.0, limit=1.0)
    if not lacking:
        yield node_check("nvls", "all ranks", "pass", "NCCL found NVLink SHARP", point=point, value=1.0, limit=1.0)


_OF_POINTS = (slowest, sensors, slow_links, checksums, nvls)
_OF_RUNS = (throttling, pcie, memory_errors, xids, fabric, nvlinks)


def node_checks(measurements: Measurements, machine: Machine, rates: Collection[str] = ()) -> tuple[NodeCheck, ...]:
    """Checks of each point, then of the whole run. Empty for a suite that does not measure the node itself.

    Benchmarks named in ``rates`` only predict speedups: they are too short to judge a GPU by.

    Driver reports of failed attempts count, too: many workers fail by an XID.
    """
    planned = [p for p in measurements.plan.points if isinstance(p.settings, NodeSettings) and p.benchmark not in rates]
    measured = [PointRecords(point, good, machine) for point in planned if (good := measurements.good(point.id))]
    checks = [check for point in measured for kind in _OF_POINTS for check in kind(point)]
    if planned and measurements.records and machine.gpus:
        checks += [check for kind in _OF_RUNS for check in kind(measurements.records, machine)]
    return tuple(checks)
