"""Rules for a worker's report of one attempt: the host's order, clock, GPUs and time window.

Every event is held against them when it is read, and all ranks together once the attempt is over. What differs fails
the attempt with the cause ``protocol``, and names the field.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import get_args

from pybench.core.schedule import METRIC as BATCH_SIZE
from pybench.model.backend import replica_of
from pybench.model.machine import SAME_CLOCK, HostClock
from pybench.model.wire import (
    PROTOCOL_VERSION,
    Event,
    Failure,
    FailureCause,
    Header,
    Metric,
    Phase,
    PhaseName,
    Result,
    Step,
    Work,
    WorkOrder,
    fits,
    work_of,
)
from pybench.model.workloads.checkpoint import PHASES, Checkpoint
from pybench.model.workloads.evaluate import Evaluate
from pybench.model.workloads.generate import Generate, drawn_lengths
from pybench.model.workloads.registry import TRAITS_OF, AnySettings
from pybench.model.workloads.settings import LARGEST
from pybench.model.workloads.train import Train
from pybench.model.workloads.turn import CHECK, Turn
from pybench.run.events.reader import RankLog

_PHASES: tuple[PhaseName, ...] = get_args(PhaseName)
WORKERS_CAUSES: tuple[FailureCause, ...] = (
    *("out_of_memory", "missing_package", "unsupported", "engine", "wrong_result", "collective_timeout", "exception"),
)
"""Causes that a rank reports, the nearest to the root first; the host alone knows of the others."""
_MAX_VALUES = 4096
_VERSION = re.compile(r"[A-Za-z0-9_.+!~-]{1,100}")
# A GPU's clock, which its parts of a step are timed by, may run faster than the host's.
_CLOCKS_APART = 1.01
_BATCH_SIZES = range(1, 2**20 + 1)
# From the end of a step to the decision on the next one, and between ranks' lengths of a step.
_HESITATION_NS = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Site:
    """A host of ranks: its ``clock`` (boot id, offset in ns), ``joined`` to the lead's, and visible GPUs."""

    clock: tuple[str, int]
    gpu_uuids: tuple[str, ...] = ()
    joined: HostClock = SAME_CLOCK


@dataclass(frozen=True, kw_only=True)
class Contract:
    """One attempt as ordered, begun at ``start_ns``; each site has the same number of ranks, in order."""

    order: WorkOrder
    num_processes: int
    sites: tuple[Site, ...]
    start_ns: int

    def site(self, rank: int) -> Site:
        """The host of a rank."""
        return self.sites[rank * len(self.sites) // self.num_processes]

    def check(self, rank: int, log: RankLog, event: Event, now_ns: int) -> None:
        """Hold an event, read at ``now_ns``, against the order and earlier ones. Raises ``ValueError``."""
        if log.result is not None and not isinstance(event, Failure):
            raise broken(rank, "result", "is not the rank's last event")
        if isinstance(event, Failure):
            require(event.cause in WORKERS_CAUSES, rank, "error.cause", f"a worker reports no {event.cause}")
            return
        if isinstance(event, Header):
            require(log.header is None, rank, "header", "comes twice")
            self._check_header(rank, event)
            return
        require(log.header is not None, rank, "header", "is not the first event")
        match event:
            case Phase():
                before = _PHASES.index(log.phase.name) if log.phase else -1
                require(_PHASES.index(event.name) > before, rank, "phase.name", f"{event.name} comes late or twice")
                self._check_time(rank, "phase.start_ns", event.start_ns, log, now_ns)
            case Step():
                self._check_step(rank, log, event, now_ns)
            case Metric():
                field = f"metric.{event.name[:80]}"
                require(event.name not in {other.name for other in log.metrics}, rank, field, "comes twice")
                unit = self._check_value(rank, field, event.name, event.value)
                same(rank, f"{field}.unit", event.unit, unit)
            case Result():
                same(rank, "result.warmup_steps", event.warmup_steps, log.num_steps - len(log.steps))
                longest_ns = max((step.duration_ns for step in log.steps), default=0)
                # Another step, as long as the longest, would have ended behind the run's time.
                no_time = longest_ns > 0 and not fits(longest_ns, log.latest_ns + _HESITATION_NS, self.order.end_ns)
                problem = f"the rank measured {len(log.steps)} steps, {self.order.steps} were ordered"
                require(no_time or len(log.steps) == self.order.steps, rank, "result", problem)
                same(rank, "phase.name", log.phase.name if log.phase else None, _PHASES[-1])

    def _check_header(self, rank: int, header: Header) -> None:
        same(rank, "header.protocol", header.protocol, PROTOCOL_VERSION)
        same(rank, "header.rank", header.rank, rank)
        same(rank, "header.world_size", header.world_size, self.num_processes)
        site = self.site(rank)
        if (header.boot_id, header.time_offset_ns) != site.clock:
            raise broken(rank, "header.boot_id", "the rank runs on another clock than this host")
        same(rank, "header.device", header.device, self.order.device)
        same(rank, "header.replica", header.replica, replica_of(self.order.settings, rank))
        others = [uuid for uuid in header.all_uuids if uuid not in site.gpu_uuids]
        if others:
            allowed = ", ".join(site.gpu_uuids) or "none"
            raise broken(rank, "header.device_uuid", f"{', '.join(others)[:200]} is not one of the GPUs: {allowed}")
        for name, version in {"python": header.python, **header.packages}.items():
            known = _VERSION.fullmatch(name) and _VERSION.fullmatch(version)
            require(known is not None, rank, "header.packages", "has a name or version that is none")
        require(header.pid > 0, rank, "header.pid", "is no process id")

    def _check_time(self, rank: int, field: str, time_ns: int, log: RankLog, now_ns: int) -> None:
        slack_ns = self.site(rank).joined.bound_ns
        require(time_ns >= self.start_ns - slack_ns, rank, field, "lies before the attempt's start")
        require(time_ns >= log.latest_ns, rank, field, "lies before the end of an earlier event")
        require(time_ns <= now_ns + slack_ns, rank, field, "lies in the future")

    def _check_step(self, rank: int, log: RankLog, step: Step, now_ns: int) -> None:
        same(rank, "step.index", step.index, log.num_steps)
        same(rank, "step.phase", step.phase, log.phase.name if log.phase else None)
        done = len(log.steps) if step.phase == "measure" else log.num_steps
        most = self.order.steps if step.phase == "measure" else self.order.max_warmup_steps
        require(done < most, rank, "step.index", f"there are more than {most} steps in phase {step.phase}")
        self._check_time(rank, "step.start_ns", step.start_ns, log, now_ns)
        require(step.end_ns > step.start_ns, rank, "step.end_ns", "lies before the step's start")
        slack_ns = self.site(rank).joined.bound_ns
        require(step.end_ns <= now_ns + slack_ns, rank, "step.end_ns", "lies in the future")
        self._check_work(rank, log, step)
        check_stamps(rank, step)
        require(abs(step.loss or 0) <= LARGEST, rank, "step.loss", "is larger than any measurement")
        check_spans(rank, step, ordered_phases(self.order.settings))
        require(len(step.values) <= _MAX_VALUES, rank, "step.values", f"has more than {_MAX_VALUES} values")
        metrics = TRAITS_OF[self.order.settings.workload].metrics
        for name, value in step.values.items():
            field = f"step.values.{name[:80]}"
            self._check_value(rank, field, name, value)
            metric = metrics.get(name)
            if metric is not None and metric.part_of_step:
                longest_s = _CLOCKS_APART * (step.end_ns - step.start_ns) / 1e9
                require(value <= longest_s, rank, field, "is longer than its step")

    def _check_work(self, rank: int, log: RankLog, step: Step) -> None:
        settings = self.order.settings
        ordered = ordered_work(settings, replica_of(settings, rank))
        failed = step.values.get("num_failed_requests", 0) if settings.backend == "server" else 0
        if ordered is not None and step.work != ordered:
            # Requests that failed leave less work.
            fewer = step.work.prompt_tokens < ordered.prompt_tokens and step.work.output_tokens < ordered.output_tokens
            is_the_rest = fewer and step.work.samples > 0 and step.work.samples + failed == ordered.samples
            require(bool(failed) and is_the_rest, rank, "step.work", f"{step.work} was done, {ordered} ordered")
        if ordered is None and log.steps and step.work != log.steps[-1].work:
            raise broken(rank, "step.work", "differs from the step before")
        most = step.work.output_tokens
        require(len(step.token_end_ns) <= most, rank, "step.token_end_ns", f"has more times than {most} tokens")
        if step.requests:
            same(rank, "step.requests", len(step.requests), step.work.samples)
            for name in ("prompt_tokens", "output_tokens"):
                total = sum(getattr(request, name) for request in step.requests)
                same(rank, f"step.requests.{name}", total, getattr(step.work, name))

    def _check_value(self, rank: int, field: str, name: str, value: float) -> str:
        """The declared unit of the value ``name``. A value with a unit is not negative."""
        workload = self.order.settings.workload
        unit = TRAITS_OF[workload].reported_unit(name)
        if unit is None:
            raise broken(rank, field, f"workload {workload} declares no value of this name for ranks to report")
        require(not unit or value >= 0, rank, field, "is negative")
        require(abs(value) <= LARGEST, rank, field, "is larger than any measurement")
        return unit

    def verify(self, ranks: Sequence[RankLog]) -> Failure | None:
        """Hold a finished attempt's ranks against the order and each other."""
        try:
            for rank, log in enumerate(ranks):
                if log.header is None or log.result is None:
                    raise broken(rank, "header" if log.header is None else "result", "is missing")
                with_gpu = bool(self.site(rank).gpu_uuids)
                require(bool(log.header.all_uuids) == with_gpu, rank, "header.device_uuid", "is missing")
                if ordered_work(self.order.settings, 0) is None:
                    self._check_found_batch(rank, log)
            self._check_together(ranks)
        except ValueError as error:
            return Failure(cause="protocol", message=str(error))
        return None

    def _check_found_batch(self, rank: int, log: RankLog) -> None:
        """The work of an ``auto`` batch size follows from the size that the worker found."""
        size = next((metric.value for metric in log.metrics if metric.name == BATCH_SIZE), None)
        if size is None or size not in _BATCH_SIZES:
            raise broken(rank, f"metric.{BATCH_SIZE}", "is missing or no number of samples")
        settings = self.order.settings
        assert isinstance(settings, Train)
        ordered = ordered_work(replace(settings, batch_size_per_gpu=int(size)), 0)
        same(rank, "step.work", log.steps[-1].work, ordered)

    def _check_together(self, ranks: Sequence[RankLog]) -> None:
        """No GPU has two ranks; ranks are at a step at the same time, as they wait for each other at both its ends."""
        used = [uuid for log in ranks if log.header for uuid in log.header.all_uuids]
        if twice := next((uuid for uuid in used if used.count(uuid) > 1), None):
            raise ValueError(f"header.device_uuid: {used.count(twice)} ranks ran on one GPU, {twice}")
        slack_ns = 2 * max(site.joined.bound_ns for site in self.sites)
        for steps in zip(*(log.steps for log in ranks), strict=True):
            if max(step.start_ns for step in steps) > min(step.end_ns for step in steps) + slack_ns:
                raise ValueError(f"step.start_ns: ranks were not at step {steps[0].index} at the same time")


_DISCARDED = 2  # sleep level at which the engine's weights are gone


def ordered_work(settings: AnySettings, replica: int) -> Work | None:
    """Work that each rank of a replica reports for a step; ``None`` before an ``auto`` batch size is found."""
    if isinstance(settings, Generate):
        return work_of(tuple(drawn_lengths(settings, replica)))
    if isinstance(settings, Train):
        return None if settings.finds_batch_size else Work(samples=settings.effective_batch_size)
    if isinstance(settings, Turn):
        return work_of(settings.turns * tuple(drawn_lengths(settings.generation, replica)))
    return Work(samples=settings.batch_size) if isinstance(settings, Evaluate) else Work()


def ordered_phases(settings: AnySettings) -> tuple[str, ...]:
    """Names of a step's parts on every rank, in order; none where the workload has no phases."""
    if not isinstance(settings, Turn):
        return PHASES if isinstance(settings, Checkpoint) else ()
    loaded, away = (("trainer_onload",), ("trainer_offload",)) if settings.sleep_level else ((), ())
    awake = ("wake_weights", *((CHECK,) if settings.sleep_level == _DISCARDED else ()))
    # Weights that go from memory to memory leave last; a file and adapters are read when the trainer has left.
    if settings.handover != "file" and settings.lora_rank is None:
        handed_over = (*away, *awake, "handover", *away, "wake_cache")
    else:
        read = () if settings.async_weight_syncing else ("handover",)
        handed_over = ("handover", *away, *awake, *read, "wake_cache")
    switch = ("engine_sleep", *loaded, CHECK, "train", CHECK, *handed_over)
    synchronous = ("generate", *switch, "first_token", CHECK)
    return ((*switch, "generate", CHECK) if settings.async_weight_syncing else synchronous) * settings.turns


# Times of tokens and requests come from an engine's own stamps, or from a GPU's clock.
_STAMP_SLACK_NS = 5_000_000


def check_stamps(rank: int, step: Step) -> None:
    """Times of tokens and requests are ordered, and inside the step."""
    low_ns, high_ns = step.start_ns - _STAMP_SLACK_NS, step.end_ns + _STAMP_SLACK_NS
    ends = step.token_end_ns
    in_step = not ends or (low_ns <= ends[0] and ends[-1] <= high_ns)
    ordered = all(earlier <= later for earlier, later in pairwise(ends))
    require(in_step and ordered, rank, "step.token_end_ns", "is out of order or outside the step")
    for request in step.requests:
        stamps = (low_ns, request.arrival_ns, request.first_token_ns, request.last_token_ns, high_ns)
        ordered = all(earlier <= later for earlier, later in pairwise(stamps))
        require(ordered, rank, "step.requests", "has times out of order or outside the step")
        counted = request.prompt_tokens > 0 and request.output_tokens > 0
        require(counted, rank, "step.requests", "has a request without tokens")


def check_spans(rank: int, step: Step, phases: tuple[str, ...]) -> None:
    """Parts of the step are the ``phases`` of its order, follow each other, and lie inside the step."""
    others = [span.name[:80] for span in step.spans if span.name not in phases]
    require(not others, rank, "step.spans.name", f"{''.join(others[:1])} is no phase of the order")
    require(tuple(span.name for span in step.spans) == phases, rank, "step.spans", "are not the order's phases")
    times = (step.start_ns, *(ns for span in step.spans for ns in (span.start_ns, span.end_ns)), step.end_ns)
    ordered = all(earlier <= later for earlier, later in pairwise(times))
    require(ordered, rank, "step.spans", "has parts out of order or outside the step")
    require(all(span.start_ns < span.end_ns for span in step.spans), rank, "step.spans", "has a part without length")
    amounts = [amount for span in step.spans for amount in (span.device_bytes, span.host_bytes)]
    require(all(amount is None or amount >= 0 for amount in amounts), rank, "step.spans", "has negative bytes")


def require(held: bool, rank: int, field: str, problem: str) -> None:
    """Raise ``ValueError`` with the ``problem`` of a rank's field, unless the rule is ``held``."""
    if not held:
        raise broken(rank, field, problem)


def same(rank: int, field: str, reported: object, expected: object) -> None:
    """Raise ``ValueError`` where a rank reported another value than the one expected."""
    if reported != expected:
        raise broken(rank, field, f"found {str(reported)[:200]!r}, expected {str(expected)!r}")


def broken(rank: int, field: str, problem: str) -> ValueError:
    """The error of a rank's field."""
    return ValueError(f"rank {rank}: {field}: {problem}")
