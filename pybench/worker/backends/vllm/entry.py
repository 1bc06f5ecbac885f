"""The vllm backend: join the replicas, start an engine, generate."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import vllm

from pybench.model.backend import BACKENDS, replica_of
from pybench.model.decoder_shape import DecoderShape
from pybench.model.tuning import LOOPBACK
from pybench.model.wire import Metric, WorkOrder, work_of
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.turn import Turn
from pybench.worker.backend import Session, StepOutcome, UnsupportedError, generation_of
from pybench.worker.backends.engine import RequestedWork, config_folder, joined_replica
from pybench.worker.backends.vllm.engines import BatchEngine, Follower, Following, ServingEngine, completed
from pybench.worker.backends.vllm.translation import Iterations, ReplicaHosts, engine_arguments, meet_hosts
from pybench.worker.exchange import Device
from pybench.worker.gpus import visible_gpus
from pybench.worker.imports import needs_package
from pybench.worker.ranks import Ranks, read_own_place


def join(order: WorkOrder) -> AbstractContextManager[tuple[Ranks, Device]]:
    """Take this replica's GPUs, or of several trainers that take turns with an engine this one's."""
    if isinstance(order.settings, Turn) and order.settings.num_trainers > 1:
        from pybench.worker.backends.vllm.turns import joined_trainers

        return joined_trainers(order)
    if order.settings.num_nodes > 1:
        os.environ["VLLM_HOST_IP"], _ = read_own_place()
    return joined_replica(order)


class VllmGeneration(RequestedWork):
    """An engine and the requests of every step of one point."""

    def __init__(
        self, order: WorkOrder, engine: BatchEngine | ServingEngine, iterations: Iterations, replica: int
    ) -> None:
        super().__init__(order, replica)
        self._engine = engine
        self._iterations = iterations
        engine.ask_workers("pybench_forget_peak")

    def step(self, _index: int) -> StepOutcome:
        """Generate for every request."""
        self._iterations.clear()
        times = self._engine.generate(self.requests, self.concurrency)
        ends_ns, values = tuple(self._iterations.end_ns), self._iterations.values()
        return StepOutcome(work=work_of(times), token_end_ns=ends_ns, requests=tuple(times), values=values)

    def metrics(self) -> tuple[Metric, ...]:
        """Peak memory of the fullest GPU, room of the key-value cache, and how many sequences could have run."""
        reports = self._engine.ask_workers("pybench_device_report")
        limit: int = self._engine.engine.vllm_config.scheduler_config.max_num_seqs
        metrics = [
            Metric(name="peak_memory_bytes", value=max(report[1] for report in reports), unit="bytes"),
            Metric(name="peak_reserved_memory_bytes", value=max(report[2] for report in reports), unit="bytes"),
        ]
        cache_tokens = min(report[3] for report in reports)
        if cache_tokens:
            metrics.append(Metric(name="kv_cache_tokens", value=cache_tokens, unit="tokens"))
        if self.wanted is not None:
            metrics.append(Metric(name="num_runnable", value=min(self.wanted, limit), unit=""))
        return tuple(metrics)


@contextmanager
def prepare(order: WorkOrder, ranks: Ranks) -> Iterator[Session]:
    """Start an engine with random weights for the order's shape; each point of turns starts its own."""
    # Forked processes begin with vLLM imported, which takes 20 s anew. A trainer's CUDA context can't be forked, nor
    # the threads by which several replicas or hosts meet.
    is_alone = BACKENDS["vllm"].num_processes(order.settings) == 1 and not isinstance(order.settings, Turn)
    # One machine needs no network, and usage is not reported.
    variables = {"VLLM_HOST_IP": "127.0.0.1", **LOOPBACK, "VLLM_NO_USAGE_STATS": "1"}
    variables["VLLM_WORKER_MULTIPROC_METHOD"] = "fork" if is_alone else "spawn"
    for name, value in variables.items():
        os.environ.setdefault(name, value)
    if isinstance(order.settings, Turn):
        with needs_package("backend 'vllm'", "torch"):
            from pybench.worker.backends.vllm.turns import turns
        yield partial(turns, ranks=ranks)
        return
    settings, architecture = generation_of(order)
    hosts = None
    if settings.nodes_of_replica > 1:
        uuids = tuple(gpu.uuid for gpu in visible_gpus())
        hosts = meet_hosts(settings.nodes_of_replica, read_own_place(), uuids)
    with config_folder(architecture, settings.dtype) as folder:
        # By a relative path: vLLM's key of compiled code has the path.
        relative = folder.relative_to(Path.cwd())
        arguments = completed(engine_arguments(settings, relative, hosts), settings)
        replica = replica_of(order.settings, ranks.rank)
        if hosts is not None and hosts.place:
            with closing(Follower(arguments, is_batch=settings.is_batch)) as follower:
                yield lambda point: nullcontext(Following(point, replica))
                follower.leave()
                ranks.barrier()  # until the one that drives the workers has done its last step
        else:
            has_experts = DecoderShape.from_config(architecture).num_experts > 1
            with _driven(arguments, settings, ranks, hosts, has_experts=has_experts) as (engine, iterations):
                yield lambda point: nullcontext(VllmGeneration(point, engine, iterations, replica))


@contextmanager
def _driven(
    arguments: dict[str, Any], settings: Generate, ranks: Ranks, hosts: ReplicaHosts | None, *, has_experts: bool
) -> Iterator[tuple[BatchEngine | ServingEngine, Iterations]]:
    """The engine of this replica, whose workers on other hosts end after it.

    Raises :class:`UnsupportedError` where its workers are on other GPUs, or have no router of the names looked for.
    """
    iterations = Iterations()
    engine = BatchEngine(arguments, iterations) if settings.is_batch else ServingEngine(arguments, iterations)
    with closing(engine):
        expected = {gpu.uuid for gpu in visible_gpus()} if hosts is None else hosts.uuids
        actual = {report[0] for report in engine.ask_workers("pybench_device_report")}
        if actual != expected:
            wanted = ", ".join(sorted(expected))
            raise UnsupportedError(f"vLLM runs on {', '.join(sorted(actual))}, expected on {wanted}")
        if has_experts and not all(engine.ask_workers("pybench_spread_experts", settings.seed)):
            raise UnsupportedError(
                f"vllm {vllm.__version__}: this model's routers have other names here, and under dummy weights "
                "nearly all tokens would go to the same few experts"
            )
        yield engine, iterations
        if settings.nodes > 1:
            ranks.barrier()
