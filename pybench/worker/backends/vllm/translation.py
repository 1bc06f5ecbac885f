"""A work order in vLLM's words, and vLLM's reports in ours."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, repeat
from pathlib import Path
from typing import Any

from pybench.model.wire import RequestTimes
from pybench.model.workloads.generate import Generate, gap_values
from pybench.worker.backend import EngineError


@dataclass(frozen=True, kw_only=True)
class ReplicaHosts:
    """This process's ``place`` among the replica's hosts; at ``address`` and ``port`` the first one's workers serve.

    ``uuids`` are the GPUs of all its hosts.
    """

    num_hosts: int
    place: int
    address: str
    port: int
    uuids: frozenset[str]


def meet_hosts(num_hosts: int, own_place: tuple[str, int], uuids: tuple[str, ...]) -> ReplicaHosts:
    """Learn of the replica's other hosts; collective over all processes of the point."""
    from torch import distributed  # a replica of one host starts without it

    first, place = divmod(distributed.get_rank(), num_hosts)
    of_processes: list[tuple[tuple[str, int], tuple[str, ...]]] = [(("", 0), ())] * distributed.get_world_size()
    distributed.all_gather_object(of_processes, (own_place, uuids))
    replica = of_processes[first * num_hosts : (first + 1) * num_hosts]
    (address, port), _ = replica[0]
    return ReplicaHosts(
        num_hosts=num_hosts,
        place=place,
        address=address,
        port=port,
        uuids=frozenset(uuid for _, theirs in replica for uuid in theirs),
    )


WORKER = "pybench.worker.backends.vllm.worker.GenerationWorker"


def engine_arguments(settings: Generate, folder: Path, hosts: ReplicaHosts | None = None) -> dict[str, Any]:
    """Keywords of ``EngineArgs`` for one replica: random weights, no tokenizer, statistics on.

    The engine makes room for sequences of the settings' own length, unless they name a longer one: a model's longest
    would claim cache for nothing. ``hosts`` are those of a replica that spans several.
    """
    spans_gpus = settings.tensor_parallel * settings.pipeline_parallel > 1
    optional: dict[str, Any] = {
        "quantization": settings.quantization,
        "max_num_seqs": settings.max_num_seqs,
        "distributed_executor_backend": "mp" if spans_gpus else None,
    }
    if hosts is not None:  # the arguments that ``vllm serve --nnodes N`` sets, without Ray
        optional |= {"nnodes": hosts.num_hosts, "node_rank": hosts.place}
        optional |= {"master_addr": hosts.address, "master_port": hosts.port}
    return {
        "model": str(folder),
        "skip_tokenizer_init": True,
        "load_format": "dummy",
        "dtype": settings.dtype,
        "seed": settings.seed,
        "max_model_len": settings.context_tokens,
        "tensor_parallel_size": settings.tensor_parallel,
        "pipeline_parallel_size": settings.pipeline_parallel,
        "enforce_eager": settings.enforce_eager,
        "gpu_memory_utilization": settings.gpu_memory_utilization,
        "enable_prefix_caching": bool(settings.prefix_caching),
        "disable_log_stats": False,
        "worker_extension_cls": WORKER,
        **{name: value for name, value in optional.items() if value is not None},
    }


def prompt_of(tokens: list[int], salt: str | None = None) -> dict[str, Any]:
    """A prompt in the form that the engine's own renderer gives it (``vllm.inputs.TokensInput``).

    Only prompts of the same ``salt`` share cache entries.
    """
    prompt: dict[str, Any] = {"type": "token", "prompt_token_ids": tokens}
    return prompt if salt is None else {**prompt, "cache_salt": salt}


def salts(arguments: Mapping[str, Any]) -> Iterator[str | None]:
    """A salt for each step, so that prompts that come again are computed again; none without prefix caching."""
    return map(str, count(1)) if arguments["enable_prefix_caching"] else repeat(None)


class Iterations:
    """A stat logger of vLLM's (``vllm.v1.metrics.loggers.StatLoggerBase``), which calls ``record`` every iteration.

    Its gaps between tokens are the engine's own, one for each request and iteration.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget the step before."""
        self.end_ns: list[int] = []
        self._gaps_s: list[float] = []
        self._num_preemptions = 0
        self._num_running = 0
        self._num_looked_up = 0
        self._num_found = 0

    def values(self) -> dict[str, float]:
        """Metrics of the step so far, by name."""
        counts = {"num_preemptions": float(self._num_preemptions), "num_running": float(self._num_running)}
        hits = {"prefix_hit_fraction": self._num_found / self._num_looked_up} if self._num_looked_up else {}
        return {**gap_values(self._gaps_s), **counts, **hits}

    def record(self, scheduler_stats: Any, iteration_stats: Any, *_more: Any, **_others: Any) -> None:
        """Take one iteration's statistics."""
        if iteration_stats is not None:
            if iteration_stats.num_generation_tokens:
                self.end_ns.append(time.monotonic_ns())
            self._gaps_s += iteration_stats.inter_token_latencies_iter
            self._num_preemptions += iteration_stats.num_preempted_reqs
        if scheduler_stats is not None:
            self._num_running = max(self._num_running, scheduler_stats.num_running_reqs)
            # Prompt tokens of new requests; none are looked up without prefix caching.
            self._num_looked_up += scheduler_stats.prefix_cache_stats.queries
            self._num_found += scheduler_stats.prefix_cache_stats.hits

    def log_engine_initialized(self) -> None:
        """Nothing to report."""

    def log(self) -> None:
        """Nothing to report."""

    def record_sleep_state(self, *_state: int) -> None:
        """The engine never sleeps here."""


def times_of(output: Any, arrival_ns: int) -> RequestTimes:
    """Times of one finished request. The engine stamps tokens on CLOCK_MONOTONIC, which is ours too.

    Tokens are counted, not taken from the request. Raises :class:`EngineError` when the engine kept no times.
    """
    metrics = output.metrics
    if metrics is None or not metrics.first_token_ts:
        raise EngineError(f"vLLM kept no times of request {output.request_id}")
    return RequestTimes(
        arrival_ns=arrival_ns,
        first_token_ns=round(metrics.first_token_ts * 1e9),
        last_token_ns=round(metrics.last_token_ts * 1e9),
        prompt_tokens=len(output.prompt_token_ids),
        output_tokens=len(output.outputs[0].token_ids),
    )
