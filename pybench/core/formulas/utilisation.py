"""What generation computed, and how much of the GPUs' peaks it used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from pybench.core.flops import decode_round_bytes, generate_flops
from pybench.core.formulas.joint_step import JointStep
from pybench.core.formulas.latency import requests_by_replica, requests_of
from pybench.core.gpu_models import GpuPeak, gpu_peak
from pybench.model.decoder_shape import DecoderShape
from pybench.model.wire import RequestTimes
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.settings import DTYPE_BYTES


def utilisation(settings: Generate, shape: DecoderShape, step: JointStep) -> dict[str, float | None]:
    """Model FLOPs, MFU and MBU; none where a cache spares a part of the work, no share of peaks that are not known."""
    flops = model_flops(settings, shape, step)
    peak = gpu_peak(step.device_name)
    if flops is None or peak is None:
        return {"model_flops": flops}
    return {
        "model_flops": flops,
        "mfu_fraction": _mfu(settings, flops, step.length_s, peak),
        "mbu_fraction": _mbu(settings, shape, step, peak),
    }


def model_flops(settings: Generate, shape: DecoderShape, step: JointStep) -> float | None:
    """Operations that the model needs for the step's sequences; ``None`` where a part of them came from a cache.

    What is recomputed after a preemption is not counted: it is no progress.
    """
    lengths = Counter((request.prompt_tokens, request.output_tokens) for request in requests_of(step))
    if settings.prefix_caching or not lengths:
        return None
    return sum(count * generate_flops(shape, *tokens) for tokens, count in lengths.items())


def _mfu(settings: Generate, flops: float, length_s: float, peak: GpuPeak) -> float | None:
    """FLOPs over the step's length times the peaks of all GPUs (PaLM, arXiv:2204.02311, appendix B)."""
    flops_per_s = peak.flops_per_s(settings.computing_type)
    return None if flops_per_s is None else flops / (length_s * settings.num_gpus * flops_per_s)


def _mbu(settings: Generate, shape: DecoderShape, step: JointStep, peak: GpuPeak) -> float | None:
    """Bytes of one decode round over TPOT times the peak bandwidth of one replica's GPUs.

    Sequences in a round: time that requests spent in decode, over the time in which any of their replica did (Little's
    law); their context is the mean over rounds, of which long answers have more. ``None`` for pipelines, whose stages
    read their weights several times in one TPOT, for weights of four bits, which are unpacked to memory and read again,
    and for a key-value cache of a type whose size is not known.
    """
    cache_bytes = _cache_bytes(settings)
    replicas = [[r for r in requests if r.last_token_ns > r.first_token_ns] for requests in requests_by_replica(step)]
    decoded = [request for requests in replicas for request in requests]
    packed = settings.quantization == "bitsandbytes"
    if settings.pipeline_parallel > 1 or not decoded or cache_bytes is None or packed:
        return None
    lengths_ns = [request.last_token_ns - request.first_token_ns for request in decoded]
    contexts = [request.prompt_tokens + request.output_tokens / 2 for request in decoded]
    num_bytes = decode_round_bytes(
        shape,
        sum(lengths_ns) / sum(_busy_ns(requests) for requests in replicas),
        fmean(contexts, weights=lengths_ns),
        weight_bytes=DTYPE_BYTES[settings.computing_type],
        # vLLM's fp8 is of linear layers and experts (model_executor/layers/quantization/fp8.py).
        head_bytes=DTYPE_BYTES[settings.dtype],
        cache_bytes=cache_bytes,
    )
    tpot_s = fmean((r.last_token_ns - r.first_token_ns) / (r.output_tokens - 1) for r in decoded) / 1e9
    return num_bytes / (tpot_s * settings.tensor_parallel * peak.memory_bytes_per_s)


def _busy_ns(requests: Sequence[RequestTimes]) -> int:
    """Time in which any of the requests decoded."""
    busy_ns, until_ns = 0, 0
    for request in sorted(requests, key=lambda request: request.first_token_ns):
        busy_ns += max(0, request.last_token_ns - max(request.first_token_ns, until_ns))
        until_ns = max(until_ns, request.last_token_ns)
    return busy_ns


def _cache_bytes(settings: Generate) -> int | None:
    """Bytes of a cached number: the engine's own argument names its type, else it is that of weights as computed."""
    dtype = str(settings.engine_args.get("kv_cache_dtype", "auto"))
    return DTYPE_BYTES.get(settings.dtype if dtype == "auto" else dtype)
