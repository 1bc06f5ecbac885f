"""Latencies of requests, as the field's serving benchmarks define them (vLLM's ``vllm bench serve``).

==== =====================================================================================================
TTFT first token - arrival: waiting for a place in the batch, and prefill
TPOT (last token - first token) / (output tokens - 1), of requests with two tokens or more
E2E  last token - arrival
ITL  time between two tokens of one request that follow each other
==== =====================================================================================================

Percentiles are over the requests of a step, of all replicas together, interpolated between the two nearest. ITL is over
the gaps: an engine reports its own replica's figures, not its gaps, and of several replicas the greatest figure stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise, repeat
from statistics import fmean

from pybench.core.formulas.joint_step import JointStep
from pybench.model.percentiles import percentiles
from pybench.model.wire import RequestTimes, Step
from pybench.model.workloads.latency import KINDS, PERCENTILES

_NAMES = {kind: (f"{kind}_s", *(f"{kind}_p{percent}_s" for percent in PERCENTILES)) for kind in KINDS}


def requests_of(step: JointStep) -> tuple[RequestTimes, ...]:
    """Every request of every replica. Sequences that went in lockstep have the times of the decode rounds in common."""
    return tuple([request for requests in requests_by_replica(step) for request in requests])


def requests_by_replica(step: JointStep) -> tuple[Sequence[RequestTimes], ...]:
    """The same, those of each replica by themselves."""
    return tuple([replica.requests or _in_lockstep(replica) for replica in step.replicas])


def latencies(step: JointStep) -> dict[str, float | None]:
    """Mean and percentiles of TTFT, TPOT and E2E; ITL of sequences in lockstep, an engine reports its own."""
    requests = requests_of(step)
    if not requests:
        return {}
    if requests.count(requests[0]) == len(requests):
        requests = requests[:1]  # sequences in lockstep: each has the mean and the percentiles of all
    kinds: dict[str, Sequence[float]] = {
        "ttft": [request.first_token_ns - request.arrival_ns for request in requests],
        "tpot": [tpot for request in requests if (tpot := _tpot_ns(request)) is not None],
        "e2e": [request.last_token_ns - request.arrival_ns for request in requests],
        "itl": _gaps_ns(step),
    }
    found: dict[str, float | None] = {}
    for kind, values in kinds.items():
        if values:
            found.update(zip(_NAMES[kind], _spread(values), strict=True))
    return found


def _spread(values_ns: Sequence[float]) -> Iterable[float]:
    """Mean and percentiles, in s."""
    ordered = sorted(values_ns)
    if ordered[0] == ordered[-1]:
        return repeat(ordered[0] / 1e9, 1 + len(PERCENTILES))
    return fmean(ordered) / 1e9, *(value_ns / 1e9 for value_ns in percentiles(ordered, PERCENTILES))


def _tpot_ns(request: RequestTimes) -> float | None:
    gaps = request.output_tokens - 1
    return (request.last_token_ns - request.first_token_ns) / gaps if gaps > 0 else None


def _in_lockstep(step: Step) -> tuple[RequestTimes, ...]:
    """The sequences of a batch that all began with the step and got each token together."""
    ends, work = step.token_end_ns, step.work
    if not ends or not work.samples:
        return ()
    times = RequestTimes(
        arrival_ns=step.start_ns,
        first_token_ns=ends[0],
        last_token_ns=ends[-1],
        prompt_tokens=work.prompt_tokens // work.samples,
        output_tokens=len(ends),
    )
    return (times,) * work.samples


def _gaps_ns(step: JointStep) -> list[int]:
    replicas = step.replicas
    if any(replica.requests for replica in replicas):
        return []
    return [later - earlier for replica in replicas for earlier, later in pairwise(replica.token_end_ns)]
