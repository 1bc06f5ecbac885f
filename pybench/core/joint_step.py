"""One step over all ranks: its work, length and phases, and how evenly its GPUs work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pybench.model.record import Energy, Record
from pybench.model.wire import Event, Phase, Span, Step, Work


@dataclass(frozen=True)
class JointStep:
    """One step as every rank reported it, rank 0 first; ``device_name`` is rank 0's.

    ``firsts`` are the places in ``ranks`` of each replica's first rank: of 0 alone where all ranks hold one model.
    """

    ranks: tuple[Step, ...]
    device_name: str = ""
    firsts: tuple[int, ...] = (0,)

    @property
    def first(self) -> Step:
        """Rank 0's report."""
        return self.ranks[0]

    @cached_property
    def replicas(self) -> tuple[Step, ...]:
        """The report of each replica's first rank."""
        return tuple([self.ranks[place] for place in self.firsts])

    @property
    def work(self) -> Work:
        """Work of all replicas together."""
        return total_work([step.work for step in self.replicas])

    @cached_property
    def length_s(self) -> float:
        """Earliest start to latest end, in s."""
        return (max([step.end_ns for step in self.ranks]) - min([step.start_ns for step in self.ranks])) / 1e9


def joint_steps(record: Record) -> tuple[JointStep, ...]:
    """The measured steps of a record, each with all its ranks."""
    firsts: dict[int, int] = {}
    for place, rank in enumerate(record.ranks):
        firsts.setdefault(rank.header.replica, place)
    device = record.ranks[0].header.device_name if record.ranks else ""
    together = zip(*(rank.steps for rank in record.ranks), strict=True)
    return tuple(JointStep(ranks, device, tuple(firsts.values())) for ranks in together)


def total_work(works: Sequence[Work]) -> Work:
    """Sum of the work."""
    if len(works) == 1:
        return works[0]
    return Work(
        prompt_tokens=sum(work.prompt_tokens for work in works),
        output_tokens=sum(work.output_tokens for work in works),
        samples=sum(work.samples for work in works),
    )


def phase_cuts_ns(ranks: Sequence[Step]) -> tuple[int, int, int]:
    """Start of a step, the moment when every sequence has its first token, end of the step; of all ``ranks`` together.

    CLOCK_MONOTONIC nanoseconds. The first two are equal where prefill and decode overlap: a sequence ended before
    another had its first token. They are also equal in a step without tokens.
    """
    start_ns, end_ns = min(step.start_ns for step in ranks), max(step.end_ns for step in ranks)
    first_tokens_ns = [request.first_token_ns for step in ranks for request in step.requests]
    first_tokens_ns += [step.token_end_ns[0] for step in ranks if step.token_end_ns and not step.requests]
    cut_ns = max((*first_tokens_ns, *(step.start_ns for step in ranks)))
    first_end_ns = min((request.last_token_ns for step in ranks for request in step.requests), default=end_ns)
    return start_ns, cut_ns if cut_ns <= first_end_ns else start_ns, end_ns


def joint_spans(ranks: Sequence[Step]) -> tuple[Span, ...]:
    """Each phase of a step from the first rank's start to the last one's end; ranks have the same phases.

    ``device_bytes`` are the fullest rank's, ``host_bytes`` those of all ranks; ``None`` where no rank knows.
    """
    joined = []
    for spans in zip(*(step.spans for step in ranks), strict=True):
        hosts = [span.host_bytes for span in spans if span.host_bytes is not None]
        span = Span(
            name=spans[0].name,
            start_ns=min(span.start_ns for span in spans),
            end_ns=max(span.end_ns for span in spans),
            device_bytes=max((span.device_bytes for span in spans if span.device_bytes is not None), default=None),
            host_bytes=sum(hosts) if hosts else None,
        )
        joined.append(span)
    return tuple(joined)


_SEVERAL = 2


def energy_imbalance(energy: Energy) -> float | None:
    """(most - least) / mean of the GPUs' energy; ``None`` with one GPU, or where that of one is not known."""
    joules = [gpu.energy_j for gpu in energy.gpus if gpu.energy_j is not None]
    return _relative_range(joules) if len(joules) == len(energy.gpus) else None


def stage_use(busy_s: Sequence[float], length_s: float) -> dict[str, float | None]:
    """Idle share and imbalance of ranks that compute for ``busy_s`` of a step of ``length_s``; empty with one rank.

    With p equal stages and m microbatches each rank idles (p - 1) / (m + p - 1) of its time (GPipe, arXiv:1811.06965,
    2.3). Unequal stages, sending and launches add to it.
    """
    if len(busy_s) < _SEVERAL:
        return {}
    return {
        "stage_idle_fraction": 1 - sum(busy_s) / len(busy_s) / length_s,
        "stage_imbalance_fraction": _relative_range(busy_s),
    }


def _relative_range(amounts: Sequence[float]) -> float | None:
    """(most - least) / mean; ``None`` with one, or where all are 0."""
    if len(amounts) < _SEVERAL or not sum(amounts):
        return None
    return (max(amounts) - min(amounts)) / (sum(amounts) / len(amounts))


def moved(event: Event, by_ns: int) -> Event:
    """An event with its times ``by_ns`` later."""
    if by_ns == 0:
        return event
    if isinstance(event, Phase):
        return replace(event, start_ns=event.start_ns + by_ns)
    if not isinstance(event, Step):
        return event
    return replace(
        event,
        start_ns=event.start_ns + by_ns,
        end_ns=event.end_ns + by_ns,
        token_end_ns=tuple(end_ns + by_ns for end_ns in event.token_end_ns),
        requests=tuple(
            replace(
                request,
                arrival_ns=request.arrival_ns + by_ns,
                first_token_ns=request.first_token_ns + by_ns,
                last_token_ns=request.last_token_ns + by_ns,
            )
            for request in event.requests
        ),
        spans=tuple(replace(span, start_ns=span.start_ns + by_ns, end_ns=span.end_ns + by_ns) for span in event.spans),
    )
