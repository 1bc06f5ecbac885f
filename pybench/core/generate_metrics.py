"""Metrics of generation: rates, latencies, and shares of the GPUs' peaks.

Latencies are those of the field's serving benchmarks (vLLM's ``vllm bench serve``).

==== =====================================================================================================
TTFT first token - arrival: waiting for a place in the batch, and prefill
TPOT (last token - first token) / (output tokens - 1), of requests with two tokens or more
E2E  last token - arrival
ITL  time between two consecutive tokens of one request
==== =====================================================================================================

Percentiles are over the requests of a step, of all replicas together, interpolated between the two nearest. ITL is over
the gaps: an engine reports its own replica's figures without its gaps, so the greatest figure of the replicas counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise, repeat
from statistics import fmean

from pybench.core.flops import decode_round_bytes, generate_flops
from pybench.core.gpu_models import GpuPeak, gpu_peak
from pybench.core.joint_step import JointStep, energy_imbalance, total_work
from pybench.model.decoder_shape import DecoderShape
from pybench.model.record import Energy
from pybench.model.suite import Point
from pybench.model.wire import RequestTimes, Step
from pybench.model.workloads.generate import KINDS, PERCENTILES, Generate, percentile_name, percentiles
from pybench.model.workloads.settings import DTYPE_BYTES


def of_step(point: Point, step: JointStep) -> dict[str, float | None]:
    """Rates over the joint length, from the first replica's start to the last one's end; latencies; utilisation."""
    work, length_s = step.work, step.length_s
    assert isinstance(point.settings, Generate)
    requests = requests_of(step)
    num_served = num_good(point.settings, requests)
    window = steady_window_ns(point.settings, step.replicas)
    return {
        "output_tokens_per_s": work.output_tokens / length_s,
        "total_tokens_per_s": (work.prompt_tokens + work.output_tokens) / length_s,
        "requests_per_s": work.samples / length_s,
        "goodput_requests_per_s": None if num_served is None else num_served / length_s,
        "steady_output_tokens_per_s": window and steady_tokens(step.replicas, window) / (window[1] - window[0]) * 1e9,
        **latencies(step, requests),
        **(utilisation(point.settings, point.shape, step) if point.shape else {}),
    }


def shares(point: Point, steps: Sequence[JointStep]) -> dict[str, float]:
    """Divisors of the joules of all steps."""
    work = total_work([step.work for step in steps])
    served = {"energy_j_per_request": work.samples} if point.settings.backend == "server" else {}
    return {"energy_j_per_output_token": work.output_tokens, **served}


def of_energy(point: Point, steps: Sequence[JointStep], energy: Energy) -> dict[str, float | None]:
    """Metrics made of joules; prefill and decode have separate ones where all sequences run together."""
    work, settings, shape = total_work([step.work for step in steps]), point.settings, point.shape
    phases = {phase.name: phase.energy_j for phase in energy.phases}
    assert isinstance(settings, Generate)
    windows = [(step.replicas, steady_window_ns(settings, step.replicas)) for step in steps]
    num_steady = sum(steady_tokens(replicas, window) for replicas, window in windows if window)
    flops = [None if shape is None else model_flops(settings, shape, step) for step in steps]
    known = [number for number in flops if number is not None]
    return {
        "output_tokens_per_s_per_w": _over(work.output_tokens, energy.energy_j),
        "prefill_energy_j_per_prompt_token": _over(phases.get("prefill"), work.prompt_tokens),
        "decode_energy_j_per_output_token": _over(phases.get("decode"), work.output_tokens),
        "steady_energy_j_per_output_token": _over(phases.get("steady"), num_steady),
        "energy_imbalance_fraction": energy_imbalance(energy),
        "model_flops_per_j": _over(sum(known) if len(known) == len(steps) else None, energy.energy_j),
    }


def _over(amount: float | None, share: float | None) -> float | None:
    return amount / share if amount is not None and share else None


_NAMES = {kind: (f"{kind}_s", *(percentile_name(kind, percent) for percent in PERCENTILES)) for kind in KINDS}


def requests_of(step: JointStep) -> tuple[RequestTimes, ...]:
    """Every request of every replica; sequences in lockstep share the times of the decode rounds."""
    return tuple([request for replica in step.replicas for request in replica.requests or _in_lockstep(replica)])


def latencies(step: JointStep, requests: Sequence[RequestTimes]) -> dict[str, float | None]:
    """Mean and percentiles of TTFT, TPOT and E2E; ITL of sequences in lockstep, an engine reports its own."""
    if not requests:
        return {}
    if requests.count(requests[0]) == len(requests):
        requests = requests[:1]  # sequences in lockstep: each has the mean and the percentiles of all
    kinds: dict[str, Sequence[float]] = {
        "ttft": [request.first_token_ns - request.arrival_ns for request in requests],
        "tpot": [
            (request.last_token_ns - request.first_token_ns) / (request.output_tokens - 1)
            for request in requests
            if request.output_tokens > 1
        ],
        "e2e": [request.last_token_ns - request.arrival_ns for request in requests],
        "itl": []
        if any(replica.requests for replica in step.replicas)
        else [later - earlier for replica in step.replicas for earlier, later in pairwise(replica.token_end_ns)],
    }
    metrics: dict[str, float | None] = {}
    for kind, values in kinds.items():
        if values:
            metrics.update(zip(_NAMES[kind], _spread(values), strict=True))
    return metrics


def _spread(values_ns: Sequence[float]) -> Iterable[float]:
    """Mean and percentiles, in s."""
    ordered = sorted(values_ns)
    if ordered[0] == ordered[-1]:
        return repeat(ordered[0] / 1e9, 1 + len(PERCENTILES))
    return fmean(ordered) / 1e9, *(value_ns / 1e9 for value_ns in percentiles(ordered, PERCENTILES))


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


def utilisation(settings: Generate, shape: DecoderShape, step: JointStep) -> dict[str, float | None]:
    """Model FLOPs, MFU and MBU; ``None`` where a cache spares a part of the work, or a peak is unknown."""
    flops = model_flops(settings, shape, step)
    peak = gpu_peak(step.device_name)
    if flops is None or peak is None:
        return {"model_flops": flops}
    flops_per_s = peak.flops_per_s(settings.computing_type)
    return {
        "model_flops": flops,
        # FLOPs over the step's length times the peaks of all GPUs (PaLM, arXiv:2204.02311, appendix B).
        "mfu_fraction": flops / (step.length_s * settings.num_gpus * flops_per_s) if flops_per_s else None,
        "mbu_fraction": _mbu(settings, shape, step, peak),
    }


def model_flops(settings: Generate, shape: DecoderShape, step: JointStep) -> float | None:
    """Operations that the model needs for the step's sequences; ``None`` where a part of them came from a cache.

    Recomputation after a preemption is not counted: it is no progress.
    """
    lengths = Counter((request.prompt_tokens, request.output_tokens) for request in requests_of(step))
    if settings.prefix_caching or not lengths:
        return None
    return sum(count * generate_flops(shape, *tokens) for tokens, count in lengths.items())


def _mbu(settings: Generate, shape: DecoderShape, step: JointStep, peak: GpuPeak) -> float | None:
    """Bytes of one decode round over TPOT times the peak bandwidth of one replica's GPUs.

    Sequences in a round: the requests' total time in decode, over their replica's time in decode (Little's law). Their
    context is the mean over rounds. ``None`` for pipelines, whose stages read their weights several times in one TPOT;
    for weights of four bits, which some engines unpack and read again; and for a key-value cache of unknown type.
    """
    dtype = str(settings.engine_args.get("kv_cache_dtype", "auto"))
    cache_bytes = DTYPE_BYTES.get(settings.dtype if dtype == "auto" else dtype)
    replicas = [
        [request for request in step_.requests or _in_lockstep(step_) if request.last_token_ns > request.first_token_ns]
        for step_ in step.replicas
    ]
    decoded = [request for requests in replicas for request in requests]
    packed = settings.quantization in {"awq", "bitsandbytes"}
    if settings.pipeline_parallel > 1 or not decoded or cache_bytes is None or packed:
        return None
    lengths_ns = [request.last_token_ns - request.first_token_ns for request in decoded]
    contexts = [request.prompt_tokens + request.output_tokens / 2 for request in decoded]
    busy_ns = 0  # length of the union of each replica's decode times
    for requests in replicas:
        until_ns = 0
        for request in sorted(requests, key=lambda request: request.first_token_ns):
            busy_ns += max(0, request.last_token_ns - max(request.first_token_ns, until_ns))
            until_ns = max(until_ns, request.last_token_ns)
    num_bytes = decode_round_bytes(
        shape,
        sum(lengths_ns) / busy_ns,
        fmean(contexts, weights=lengths_ns),
        weight_bytes=DTYPE_BYTES[settings.computing_type],
        # vLLM's fp8 is of linear layers and experts (model_executor/layers/quantization/fp8.py).
        head_bytes=DTYPE_BYTES[settings.dtype],
        cache_bytes=cache_bytes,
    )
    tpot_s = fmean((r.last_token_ns - r.first_token_ns) / (r.output_tokens - 1) for r in decoded) / 1e9
    return num_bytes / (tpot_s * settings.tensor_parallel * peak.memory_bytes_per_s)


def num_good(settings: Generate, requests: Sequence[RequestTimes]) -> int | None:
    """Requests that kept every limit (``vllm bench serve --goodput``); ``None`` for settings without a limit."""
    limits_ns = [
        math.inf if limit_s is None else limit_s * 1e9
        for limit_s in (settings.ttft_limit_s, settings.tpot_limit_s, settings.e2e_limit_s)
    ]
    if min(limits_ns) == math.inf:
        return None
    return sum(
        request.first_token_ns - request.arrival_ns <= limits_ns[0]
        and (request.last_token_ns - request.first_token_ns) / max(1, request.output_tokens - 1) <= limits_ns[1]
        and request.last_token_ns - request.arrival_ns <= limits_ns[2]
        for request in requests
    )


def steady_window_ns(settings: Generate, ranks: Sequence[Step]) -> tuple[int, int] | None:
    """The time in which the load of a step is steady; ``None`` where it never is, or all sequences begin together.

    A closed loop is steady once each of its first ``concurrency`` requests has its first token, until the last arrival.
    An open loop is steady from the end of the first request to the last arrival. CLOCK_MONOTONIC nanoseconds.
    """
    requests = sorted((request for step in ranks for request in step.requests), key=lambda request: request.arrival_ns)
    if settings.is_batch or not requests:
        return None
    if settings.concurrency is not None:
        start_ns = max(request.first_token_ns for request in requests[: settings.concurrency])
    else:
        start_ns = min(request.last_token_ns for request in requests)
    end_ns = requests[-1].arrival_ns
    return (start_ns, end_ns) if start_ns < end_ns else None


def steady_tokens(ranks: Sequence[Step], window_ns: tuple[int, int]) -> float:
    """Tokens decoded in a window: each request's are taken as even from its first to its last."""
    start_ns, end_ns = window_ns
    total = 0.0
    for request in (request for step in ranks for request in step.requests):
        total += start_ns <= request.first_token_ns < end_ns
        lasting_ns = request.last_token_ns - request.first_token_ns
        inside_ns = min(end_ns, request.last_token_ns) - max(start_ns, request.first_token_ns)
        if lasting_ns > 0 and inside_ns > 0:
            total += (request.output_tokens - 1) * inside_ns / lasting_ns
    return total
