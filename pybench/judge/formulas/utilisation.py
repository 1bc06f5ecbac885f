"""What generation computed, and how much of the GPUs' peaks it used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from pybench.compute.flops import decode_round_bytes, generate_flops
from pybench.compute.gpu_models import GpuPeak, gpu_peak
from pybench.judge.formulas.joint_step import JointStep
from pybench.judge.formulas.latency import requests_of
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
        "mbu_fraction": _mbu(settings, shape, requests_of(step), peak),
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


def _mbu(settings: Generate, shape: DecoderShape, requests: Sequence[RequestTimes], peak: GpuPeak) -> float | None:
    """Bytes of one decode round over TPOT times the peak bandwidth of one replica's GPUs.

    Sequences in a round: time that requests spent in decode, over the time in which any did (Little's law). ``None``
    for pipelines, whose stages read their weights several times in one TPOT, for weights of four bits, which are
    unpacked to memory and read again, and for a key-value cache of a type whose size is not known.
    """
    cache_bytes = _cache_bytes(settings)
    decoded = [request for request in requests if request.last_token_ns > request.first_token_ns]
    packed = settings.quantization == "bitsandbytes"
    if settings.pipeline_parallel > 1 or not decoded or cache_bytes is None or packed:
        return None
    busy_ns = max(r.last_token_ns for r in decoded) - min(r.first_token_ns for r in decoded)
    sequences = sum(r.last_token_ns - r.first_token_ns for r in decoded) / busy_ns / settings.data_parallel
    num_bytes = decode_round_bytes(
        shape,
        sequences,
        fmean(r.prompt_tokens + r.output_tokens / 2 for r in decoded),
        weight_bytes=DTYPE_BYTES[settings.computing_type],
        # vLLM's fp8 is of linear layers and experts (model_executor/layers/quantization/fp8.py).
        head_bytes=DTYPE_BYTES[settings.dtype],
        cache_bytes=cache_bytes,
    )
    tpot_s = fmean((r.last_token_ns - r.first_token_ns) / (r.output_tokens - 1) for r in decoded) / 1e9
    return num_bytes / (tpot_s * settings.tensor_parallel * peak.memory_bytes_per_s)


def _cache_bytes(settings: Generate) -> int | None:
    """Bytes of a cached number: the engine's own argument names its type, else it is that of weights as computed."""
    dtype = str(settings.engine_args.get("kv_cache_dtype", "auto"))
    return DTYPE_BYTES.get(settings.dtype if dtype == "auto" else dtype)
