"""Stands in for vLLM: names and signatures of 0.20.2 as recorded, and an engine that gives every request a token a ms.

``FAKE_ENGINE`` tells it how to misbehave. Like the real one it starts a process of its own, whose id it prints.
"""
# ruff: noqa: D101 - its classes are those they stand in for

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

__version__ = "0.20.2"
RECORDED = json.loads(Path(__file__).with_name("vllm-0.20.2.json").read_text(encoding="utf-8"))
BEHAVIOUR = os.environ.get("FAKE_ENGINE", "")
GIB = 2**30


def _create_engine_config(self: Any, usage_context: Any = None, headless: bool = False) -> Any:
    assert usage_context in UsageContext
    assert headless, "this one is called for followers alone"
    return self


_NAMES = RECORDED["fields"]["vllm/engine/arg_utils.py:EngineArgs"]
EngineArgs = dataclasses.make_dataclass(
    "EngineArgs",
    [(field, Any, None) for field in _NAMES],
    namespace={"create_engine_config": _create_engine_config},
)
AsyncEngineArgs = dataclasses.make_dataclass(
    "AsyncEngineArgs", [("enable_log_requests", Any, None)], bases=(EngineArgs,)
)


class UsageContext(Enum):
    LLM_CLASS = "LLM_CLASS"
    OPENAI_API_SERVER = "OPENAI_API_SERVER"


class RequestOutputKind(Enum):
    FINAL_ONLY = 2


class EngineDeadError(Exception):
    def __init__(self) -> None:
        super().__init__("EngineCore encountered an issue. See stack trace (above) for the root cause.")


class SamplingParams:
    def __init__(self, **given: Any) -> None:
        unknown = set(given) - set(RECORDED["fields"]["vllm/sampling_params.py:SamplingParams"])
        assert not unknown, unknown
        self.max_tokens = given["max_tokens"]


def _met_followers(args: Any) -> list[int]:
    """The GPUs of all nodes: the first node's workers wait for the other nodes'."""
    found: list[int] = []
    if (args.nnodes or 1) > 1:
        assert (args.node_rank, args.distributed_executor_backend) == (0, "mp")
        assert args.master_addr == os.environ["VLLM_HOST_IP"]
        with socket.create_server((args.master_addr, args.master_port)) as server:
            server.settimeout(60)
            for _ in range(args.nnodes - 1):
                with server.accept()[0] as follower:
                    found += [int(index) for index in follower.recv(1000).decode().split(",")]
    return found


def _reached(address: tuple[str, int]) -> socket.socket:
    for _ in range(600):
        with suppress(ConnectionRefusedError):
            return socket.create_connection(address)
        time.sleep(0.1)
    raise TimeoutError


class MultiprocExecutor:
    """Of a follower: reaches the first node, and starts a worker, which may die."""

    def __init__(self, vllm_config: Any, monitor_workers: bool = True) -> None:
        assert not monitor_workers
        assert vllm_config.nnodes > vllm_config.node_rank > 0
        self.callback: Any = None
        self.worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
        print(f"engine process {self.worker.pid}", flush=True)
        with _reached((vllm_config.master_addr, vllm_config.master_port)) as first:
            first.sendall(os.environ["CUDA_VISIBLE_DEVICES"].encode())

    def register_failure_callback(self, callback: Any) -> None:
        self.callback = callback

    def start_worker_monitor(self, inline: bool = False) -> None:
        assert not inline
        monitor = threading.Thread(target=self._monitor, daemon=True)
        monitor.start()
        if BEHAVIOUR == "follower-dies":
            self.worker.kill()
            monitor.join()

    def _monitor(self) -> None:
        self.worker.wait()
        self.callback()

    def shutdown(self) -> None:
        self.worker.kill()
        self.worker.wait()


class _Core:
    """The engine's own process, and the statistics of its iterations."""

    def __init__(self, engine_args: Any, stat_loggers: Any) -> None:
        assert Path(engine_args.model, "config.json").is_file()
        self.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
        print(f"engine process {self.process.pid}", flush=True)
        if BEHAVIOUR == "dies-at-start":
            print("(EngineCore pid=7) ERROR ValueError: the shape makes no sense", flush=True)
        if BEHAVIOUR == "out-of-memory":
            print("(EngineCore pid=7) ERROR torch.OutOfMemoryError: CUDA out of memory. Tried 8 GiB", flush=True)
        if BEHAVIOUR in {"dies-at-start", "out-of-memory"}:
            raise RuntimeError("Engine core initialization failed. See root cause above. Failed core proc(s): {}")
        print("model", engine_args.model, "processes by", os.environ["VLLM_WORKER_MULTIPROC_METHOD"], flush=True)
        self.args = engine_args
        more = {name: getattr(engine_args, name) for name in ("cudagraph_capture_sizes", "compilation_config")}
        print(f"more arguments {more}", flush=True)
        self.others = _met_followers(engine_args)
        self.num_points = 0
        self.config = SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=engine_args.max_num_seqs or 256))
        self.loggers = [factory(self.config, 0) for factory in stat_loggers]
        self.cached: set[tuple[Any, ...]] = set()
        self.prefixes = SimpleNamespace(queries=0, hits=0)

    def look_up(self, prompt: dict[str, Any]) -> None:
        """Whole blocks that began an earlier prompt of the same salt, but for the last token."""
        if not self.args.enable_prefix_caching:
            assert "cache_salt" not in prompt
            return
        tokens, size = prompt["prompt_token_ids"], self.args.block_size or 16
        ends = range(size, len(tokens) + 1, size)
        keys = [(prompt["cache_salt"], *tokens[:end]) for end in ends]
        found = sum(size for end, key in zip(ends, keys, strict=True) if end < len(tokens) and key in self.cached)
        self.cached.update(keys)
        self.prefixes.queries += len(tokens)
        self.prefixes.hits += found

    def iterate(self, running: int, gaps_s: list[float]) -> None:
        if BEHAVIOUR == "dies-at-work":
            self.process.kill()
            print("(Worker_TP1 pid=8) ERROR RuntimeError: NCCL error: unhandled system error", flush=True)
            raise EngineDeadError
        if BEHAVIOUR == "hangs":
            time.sleep(3600)
        preempted = int(BEHAVIOUR == "preempts")
        stats = SimpleNamespace(
            num_generation_tokens=running, inter_token_latencies_iter=gaps_s, num_preempted_reqs=preempted
        )
        for logger in self.loggers:
            scheduler = SimpleNamespace(num_running_reqs=running, prefix_cache_stats=self.prefixes)
            logger.record(scheduler, stats, mm_cache_stats=None, engine_idx=0)
        self.prefixes = SimpleNamespace(queries=0, hits=0)

    def report(self, method: str, args: tuple[Any, ...]) -> list[Any]:
        if method == "pybench_forget_peak":
            self.num_points += 1
            return []
        visible = [int(index) for index in os.environ["CUDA_VISIBLE_DEVICES"].split(",")]
        indices = [index + (BEHAVIOUR == "other-gpus") for index in visible] + self.others
        if method == "pybench_spread_experts":
            print(f"experts spread by seed {args[0]}", flush=True)
            return [0 if BEHAVIOUR == "other-routers" else 2 for _ in indices]
        assert (method, args) == ("pybench_device_report", ())
        return [
            [
                f"GPU-{index:08}-fake-4000-8000-{index:012}",
                5 * GIB + index + self.num_points - 1,
                6 * GIB,
                0 if BEHAVIOUR == "preempts" else 100_000,
            ]
            for index in indices
        ]

    def shutdown(self, timeout: float | None = None) -> None:
        self.process.kill()
        self.process.wait(timeout)


def _output(request_id: str, prompt: dict[str, Any], _params: SamplingParams, stamps: list[float]) -> Any:
    assert prompt["type"] == "token"
    metrics = SimpleNamespace(first_token_ts=stamps[0], last_token_ts=stamps[-1])
    return SimpleNamespace(
        request_id=request_id,
        finished=True,
        prompt_token_ids=prompt["prompt_token_ids"],
        outputs=[SimpleNamespace(token_ids=list(range(len(stamps))))],
        metrics=metrics,
    )


class LLMEngine:
    def __init__(self, core: _Core) -> None:
        self.engine_core = core
        self.vllm_config = core.config
        self._waiting: list[tuple[str, Any, Any, list[float]]] = []

    @classmethod
    def from_engine_args(
        cls,
        engine_args: Any,
        usage_context: UsageContext = UsageContext.LLM_CLASS,
        stat_loggers: Any = None,
        enable_multiprocessing: bool = False,
    ) -> LLMEngine:
        assert usage_context is UsageContext.LLM_CLASS
        assert not enable_multiprocessing
        return cls(_Core(engine_args, stat_loggers))

    def add_request(self, request_id: str, prompt: Any, params: Any) -> str:
        self.engine_core.look_up(prompt)
        self._waiting.append((request_id, prompt, params, []))
        return request_id

    def has_unfinished_requests(self) -> bool:
        return bool(self._waiting)

    def step(self) -> list[Any]:
        running = self._waiting[: self.vllm_config.scheduler_config.max_num_seqs]
        time.sleep(0.001)
        now = time.monotonic()
        self.engine_core.iterate(len(running), [now - stamps[-1] for *_, stamps in running if stamps])
        for *_, stamps in running:
            stamps.append(now)
        ended = [entry for entry in running if len(entry[3]) == entry[2].max_tokens]
        self._waiting = [entry for entry in self._waiting if entry not in ended]
        return [_output(*entry) for entry in ended]

    def collective_rpc(self, method: str, args: tuple[Any, ...] = ()) -> list[Any]:
        return self.engine_core.report(method, args)


class AsyncLLM:
    def __init__(self, core: _Core) -> None:
        self._core = core
        self.vllm_config = core.config
        self._running = 0

    @classmethod
    def from_engine_args(
        cls,
        engine_args: Any,
        start_engine_loop: bool = True,
        usage_context: UsageContext = UsageContext.LLM_CLASS,
        stat_loggers: Any = None,
    ) -> AsyncLLM:
        assert usage_context is UsageContext.OPENAI_API_SERVER
        assert start_engine_loop
        asyncio.get_running_loop()
        return cls(_Core(engine_args, stat_loggers))

    async def generate(self, prompt: Any, sampling_params: Any, request_id: str) -> AsyncIterator[Any]:
        self._running += 1
        self._core.look_up(prompt)
        stamps: list[float] = []
        for _ in range(sampling_params.max_tokens):
            await asyncio.sleep(0.001)
            now = time.monotonic()
            self._core.iterate(self._running, [now - stamps[-1]] if stamps else [])
            stamps.append(now)
        self._running -= 1
        yield _output(request_id, prompt, sampling_params, stamps)

    async def collective_rpc(self, method: str, args: tuple[Any, ...] = ()) -> list[Any]:
        return self._core.report(method, args)

    def shutdown(self, timeout: float | None = None) -> None:
        self._core.shutdown(timeout)


def _place(name: str, *found: Any) -> None:
    """Make ``found`` importable from module ``name``, as from the real one's file."""
    parts = name.split(".")
    for end in range(2, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:end]), ModuleType(".".join(parts[:end])))
    for one in found:
        setattr(sys.modules[name], one.__name__, one)


_place("vllm.engine.arg_utils", EngineArgs, AsyncEngineArgs)
_place("vllm.sampling_params", RequestOutputKind)
_place("vllm.usage.usage_lib", UsageContext)
_place("vllm.v1.engine.llm_engine", LLMEngine)
_place("vllm.v1.engine.async_llm", AsyncLLM)
_place("vllm.v1.engine.exceptions", EngineDeadError)
_place("vllm.v1.executor.multiproc_executor", MultiprocExecutor)
