"""Generation: an offline batch, or requests as they come."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from statistics import fmean
from typing import Annotated, Any, Literal

from pybench.model.workloads.settings import BatchSize, ModelSettings, Nodes, Range, Settings, Tokens
from pybench.model.workloads.traits import Breach, GivenSettings, WorkloadTraits, less, more, shared_work, throughput

_DECIDED: dict[str, dict[str, str | None]] = {
    "vllm": {
        **{name: name for name in ("model", "dtype", "seed", "quantization", "max_num_seqs", "enforce_eager")},
        "gpu_memory_utilization": "gpu_memory_utilization",
        "max_model_len": "max_context_tokens",
        "tensor_parallel_size": "tensor_parallel",
        "pipeline_parallel_size": "pipeline_parallel",
        **dict.fromkeys(("data_parallel_size", "data_parallel_size_local", "data_parallel_rank"), "data_parallel"),
        "enable_prefix_caching": "prefix_caching",
        "nnodes": "nodes",
        **dict.fromkeys(("distributed_executor_backend", "node_rank", "master_addr", "master_port")),
    },
    "tensorrt_llm": {
        "model": "model",
        "dtype": "dtype",
        "max_seq_len": "max_context_tokens",
        "tensor_parallel_size": "tensor_parallel",
        "pipeline_parallel_size": "pipeline_parallel",
        "max_batch_size": "max_num_seqs",
        "kv_cache_config": "gpu_memory_utilization",
        "backend": None,
    },
}
"""Arguments that settings decide, by backend, each with that setting, or ``None``."""
_DECIDED_IN_TURNS = {
    "enable_sleep_mode": "sleep_level",
    "enable_lora": "lora_rank",
    "max_lora_rank": "lora_rank",
    "max_loras": None,
}


def decided_arguments(backend: str, workload: type[Settings]) -> dict[str, str | None]:
    """Arguments that settings of a workload decide, each with its setting; ``None`` where it has no such setting."""
    names = {field.name for field in fields(workload)}
    decided: dict[str, str | None] = dict(_DECIDED.get(backend, {}))
    if decided and "sleep_level" in names:
        decided.update(_DECIDED_IN_TURNS)
    return {argument: setting if setting in names else None for argument, setting in decided.items()}


def decided_text(argument: str, setting: str | None) -> str:
    """Why an argument can't be given, and the ``setting`` to give instead."""
    instead = f"; set the benchmark's {setting} instead" if setting else " and has no setting for it"
    return f"{argument}: pybench sets it itself{instead}"


def engine_argument_breaches(given: GivenSettings, workload: type[Settings]) -> Iterator[Breach]:
    """Arguments in ``engine_args`` that settings decide."""
    for backend in given.values("backend"):
        decided = decided_arguments(str(backend), workload)
        for arguments in given.values("engine_args"):
            for argument in arguments if isinstance(arguments, Mapping) else ():
                if argument in decided:
                    yield Breach(decided_text(argument, decided[argument]), "engine_args")


EngineArgument = str | int | float | bool | list[Any] | dict[str, Any]
"""A value of both TOML and JSON; lists and tables contain such values."""

ServerName = Literal["vllm", "sglang", "trtllm", "stub"]
"""Entries of ``pybench.model.servers``."""
Limit = Range(1e-6, 86400)


@dataclass(frozen=True, kw_only=True)
class Generate(ModelSettings):
    """Generation: one step prefills ``batch_size`` prompts and decodes ``output_tokens`` for each.

    All at once by default. ``concurrency`` is the number of requests in flight, each followed by the next (closed
    loop). With ``request_rate_per_s`` requests arrive at random moments, independent of earlier ones (open loop).
    The ``data_parallel`` replicas share nothing but the samples.
    """

    workload: Literal["generate"] = "generate"
    nodes: Annotated[int, Nodes, "hosts that the GPUs are spread over, as many on each"] = 1
    batch_size: Annotated[int, BatchSize, "sequences in a step, over all GPUs"]
    prompt_tokens: Annotated[int, Tokens, "prompt length of every sequence, in tokens"]
    output_tokens: Annotated[int, Range(2, 2**20), "tokens decoded for every sequence"]
    concurrency: Annotated[int | None, BatchSize, "requests in flight at a time, over all GPUs"] = None
    request_rate_per_s: Annotated[float | None, Range(1e-3, 1e6), "mean of random arrivals, over all GPUs"] = None
    burstiness: Annotated[float, Range(0.01, 100), "gamma shape of times between arrivals; 1: a Poisson process"] = 1.0
    length_spread_fraction: Annotated[float, Range(0, 0.99), "lengths vary evenly by this share of their setting"] = 0.0
    shared_prefix_tokens: Annotated[int | None, Range(0, 2**20), "first tokens that prompts share; default: 0"] = None
    max_context_tokens: Annotated[
        int | None,
        Tokens,
        "longest sequence that the engine is set up for: vllm's max_model_len, tensorrt_llm's max_seq_len; default: "
        "prompt and output",
    ] = None
    prefix_caching: Annotated[bool | None, "a replica computes equal beginnings once a step; default: false"] = None
    device_map: Annotated[Literal["auto", "sequential"], "how transformers places layers on GPUs"] = "auto"
    max_num_seqs: Annotated[int | None, BatchSize, "sequences that an engine runs at a time, in each replica"] = None
    enforce_eager: Annotated[bool, "no CUDA graphs and no compilation"] = False
    quantization: Annotated[Literal["fp8", "awq", "bitsandbytes"] | None, "awq, bitsandbytes (NF4): four bits"] = None
    gpu_memory_utilization: Annotated[
        float, Range(0.01, 1), "vllm: share of a GPU's memory; tensorrt_llm: of what weights leave free"
    ] = 0.9
    engine_args: Annotated[dict[str, EngineArgument], "more arguments of the engine, by the engine's own names"] = (
        field(default_factory=dict)
    )
    server: Annotated[ServerName | None, "server that pybench starts, by its entry"] = None
    server_command: Annotated[
        list[str] | None,
        "another server's, without a shell; `{port}`, `{model_folder}`, `{tensor_parallel}` are replaced",
    ] = None
    ttft_limit_s: Annotated[float | None, Limit, "a request with a longer TTFT is no goodput"] = None
    tpot_limit_s: Annotated[float | None, Limit, "a request with a longer TPOT is no goodput"] = None
    e2e_limit_s: Annotated[float | None, Limit, "a request with a longer end-to-end latency is no goodput"] = None
    request_limit_s: Annotated[float, Range(0.1, 86400), "a server's request is cancelled after this time"] = 600.0

    @property
    def longest_sequence_tokens(self) -> int:
        """Prompt and output."""
        return self.longest(self.prompt_tokens) + self.longest(self.output_tokens)

    @property
    def context_tokens(self) -> int:
        """Longest sequence that the engine accepts."""
        return self.max_context_tokens or self.longest_sequence_tokens

    def longest(self, tokens: int) -> int:
        """Greatest length that may be drawn for one of ``tokens``."""
        return math.floor(tokens * (1 + self.length_spread_fraction))

    def shortest(self, tokens: int) -> int:
        """Least length that may be drawn for one of ``tokens``."""
        return max(1, math.ceil(tokens * (1 - self.length_spread_fraction)))

    @property
    def computing_type(self) -> str:
        """Type that products are computed in: weights of four bits are unpacked to ``dtype``."""
        return self.quantization if self.quantization == "fp8" else self.dtype

    @property
    def nodes_of_replica(self) -> int:
        """Hosts that each replica spans; 1 where every host has whole replicas."""
        return max(1, self.nodes // self.data_parallel)

    @property
    def is_batch(self) -> bool:
        """Whether all sequences of a step begin together."""
        return self.concurrency is None and self.request_rate_per_s is None


def _rules(given: GivenSettings) -> Iterator[Breach]:
    if all(given.values(key) for key in ("concurrency", "request_rate_per_s")):
        yield Breach("needs at most one of concurrency (closed loop) and request_rate_per_s (open loop)")
    servers = [key for key in ("server", "server_command") if given.values(key)]
    if "server" in given.values("backend") and len(servers) != 1:
        yield Breach("needs server (an entry) or server_command (any other), and not both", "server")
    if set(given.values("burstiness")) - {1.0} and not given.values("request_rate_per_s"):
        yield Breach("shapes arrivals at random: give request_rate_per_s", "burstiness")
    if set(given.values("device_map")) - {"auto"} and set(given.values("pipeline_parallel") or (1,)) == {1}:
        yield Breach("spreads layers over GPUs: give pipeline_parallel above 1", "device_map")
    yield from engine_argument_breaches(given, Generate)


PERCENTILES = (50, 90, 95, 99, 99.9)

KINDS = {
    "ttft": "time to first token, from a request's arrival",
    "tpot": "time per output token of a request after its first",
    "itl": "time between a request's tokens; of several replicas the slowest",
    "e2e": "end-to-end latency, from a request's arrival to its last token",
}


def percentile_name(kind: str, percent: float) -> str:
    """The metric of a percentile: ``ttft_p99_s``, ``ttft_p999_s``."""
    return f"{kind}_p{percent:g}_s".replace(".", "")


_LATENCIES = {
    name: less("s", f"{description}; {which}", "max" if kind == "itl" else None)
    for kind, description in KINDS.items()
    for name, which in (
        (f"{kind}_s", "mean"),
        *((percentile_name(kind, percent), f"{percent}th percentile") for percent in PERCENTILES),
    )
}
_METRICS = {
    "output_tokens_per_s": throughput("tokens/s", "decoded tokens over the step's length, all GPUs together"),
    "total_tokens_per_s": throughput("tokens/s", "prompt and decoded tokens over the step's length"),
    "requests_per_s": throughput("requests/s", "finished sequences over the step's length"),
    "goodput_requests_per_s": throughput("requests/s", "finished sequences within every limit, over the step's length"),
    **_LATENCIES,
    "energy_j_per_output_token": less("J/token", "energy over decoded tokens, all GPUs together"),
    "energy_j_per_request": less("J", "energy over finished sequences, all GPUs together"),
    "steady_output_tokens_per_s": throughput("tokens/s", "tokens decoded while the load was steady, over that time"),
    "steady_energy_j_per_output_token": less("J/token", "energy over decoded tokens while the load was steady"),
    "output_tokens_per_s_per_w": more("tokens/s/W", "decoded tokens per joule"),
    "prefill_energy_j_per_prompt_token": less("J/token", "energy until every sequence has its first token"),
    "decode_energy_j_per_output_token": less("J/token", "energy after every sequence has its first token"),
    "energy_imbalance_fraction": less("", "(max - min) / mean of the GPUs' energy"),
    "exposed_communication_fraction": less("", "share of decode rounds that communication takes (torch)", "max"),
    "straggler_gap_fraction": less("", "slowest rank over the others' median, less 1, communication left out", "max"),
    "model_flops": more("FLOP", "operations the model needs for one step's sequences, all GPUs together"),
    "model_flops_per_j": more("FLOP/J", "those operations over energy, all GPUs together"),
    "mfu_fraction": more("", "model FLOPs over what the GPUs' tensor cores can do at the type in use"),
    "mbu_fraction": more("", "bytes that a decode round must read over what the GPUs' memory can deliver in that time"),
    "kv_cache_tokens": more("tokens", "tokens that fit in the key-value cache, all replicas together", "sum"),
    "num_running": more("", "most sequences that ran at a time, all replicas together", "sum"),
    "num_runnable": more("", "sequences that a large enough cache would run at a time, all replicas together", "sum"),
    "prefix_hit_fraction": more("", "share of a step's prompt tokens that prefix_caching had computed already", "mean"),
    "num_preemptions": less("", "times that a running sequence lost its place in the key-value cache", "sum"),
    "num_failed_requests": less("", "requests that a server refused, broke off or answered wrongly", "sum"),
    "num_cancelled_requests": less("", "of these, requests that took longer than request_limit_s", "sum"),
    "late_arrival_fraction": less("", "share of requests that the load generator itself sent late", "max"),
    "client_cpu_fraction": less("", "CPU time of the load generator over the step's length", "max"),
    "server_ttft_s": less("s", "mean TTFT by the server's own histogram", "mean", part_of_step=True),
    "server_itl_s": less("s", "mean ITL by the server's own histogram", "mean", part_of_step=True),
}
WORKLOAD = WorkloadTraits(
    settings=Generate,
    metrics=_METRICS,
    shared_batch="batch_size",
    scaling_rules=shared_work,
    rank_values={"cuda_graph": "", "second_context": "", "gpu_{rank}_layers": ""},
    rules=_rules,
)


@dataclass(frozen=True)
class RequestLengths:
    """One request of a step: its number, its lengths in tokens, and when after the step's start it comes, in s."""

    index: int
    prompt_tokens: int
    output_tokens: int
    arrival_s: float


def drawn_lengths(settings: Generate, replica: int) -> Iterator[RequestLengths]:
    """The share of replica ``replica`` in the step's requests, every ``data_parallel``-th of them.

    Lengths are evenly distributed within the settings' spread; arrivals have the settings' rate over all replicas, else
    all at 0. Replicas have requests in turn: each one's arrivals are more even than a Poisson process.
    """
    numbers = random.Random(settings.seed)  # noqa: S311 - no secret
    arrival_s = 0.0
    for index in range(settings.batch_size):
        rate_per_s, burstiness = settings.request_rate_per_s, settings.burstiness
        if rate_per_s is not None and burstiness == 1:
            arrival_s += numbers.expovariate(rate_per_s)
        elif rate_per_s is not None:  # as vllm bench serve --burstiness
            arrival_s += numbers.gammavariate(burstiness, 1 / (rate_per_s * burstiness))
        prompt, output = (
            numbers.randint(settings.shortest(n), settings.longest(n))
            for n in (settings.prompt_tokens, settings.output_tokens)
        )
        if index % settings.data_parallel == replica:
            yield RequestLengths(index, prompt, output, arrival_s)


def percentiles(ordered: Sequence[float], percents: tuple[float, ...]) -> list[float]:
    """Percentiles of sorted values, interpolated between the two nearest, in the values' unit.

    Definition 7 of R. Hyndman and Y. Fan (The American Statistician 50(4), 1996), as numpy's default, whose call costs
    more than the work for the few values of most steps. Raises ``IndexError`` without any value.
    """
    last, interpolated = len(ordered) - 1, []
    for place in (last * percent / 100 for percent in percents):
        below, above = ordered[int(place)], ordered[min(int(place) + 1, last)]
        interpolated.append(below + (above - below) * (place % 1))
    return interpolated


def gap_values(gaps_s: Sequence[float]) -> dict[str, float]:
    """Mean and percentiles, by the names of their metrics; empty without a gap."""
    if not gaps_s:
        return {}
    ordered = sorted(gaps_s)
    found_s = zip(PERCENTILES, percentiles(ordered, PERCENTILES), strict=True)
    return {"itl_s": fmean(ordered), **{percentile_name("itl", percent): value for percent, value in found_s}}
