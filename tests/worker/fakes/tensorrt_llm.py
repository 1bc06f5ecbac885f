"""Stands in for TensorRT-LLM: names as recorded, and an engine that gives every request a token a ms.

``FAKE_ENGINE`` tells it how to misbehave.
"""
# ruff: noqa: D101 - its classes are those they stand in for

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

__version__ = "1.2.1"
RECORDED = json.loads(Path(__file__).with_name("tensorrt_llm-1.x.json").read_text(encoding="utf-8"))
BEHAVIOUR = os.environ.get("FAKE_ENGINE", "")


def _check(what: str, given: dict[str, Any]) -> None:
    name, _, method = what.partition(".")
    unknown = set(given) - set(RECORDED[name][method])
    assert not unknown, unknown


class TorchLlmArgs:
    model_fields = dict.fromkeys(RECORDED["LLM"]["__init__"])


class KvCacheConfig:
    def __init__(self, **given: Any) -> None:
        _check("KvCacheConfig.__init__", given)
        assert not given["enable_partial_reuse"]
        self.reuses = given["enable_block_reuse"]


class CudaGraphConfig:
    def __init__(self, **given: Any) -> None:
        _check("CudaGraphConfig.__init__", given)
        assert given["enable_padding"]


class RequestError(RuntimeError):
    pass


class SamplingParams:
    def __init__(self, **given: Any) -> None:
        _check("SamplingParams.__init__", given)
        self.max_tokens = given["max_tokens"]
        self.end_id = given.get("end_id")


class _Timing(SimpleNamespace):
    def __init__(self, **given: Any) -> None:
        assert given.keys() <= set(RECORDED["RequestPerfMetrics"]["timing_metrics"])
        super().__init__(**given)


def _misbehave_at_work() -> None:
    if BEHAVIOUR == "step-fails":
        raise RequestError("NCCL error: unhandled system error")
    if BEHAVIOUR == "step-out-of-memory":
        raise RequestError("CUDA out of memory. Tried to allocate 2.00 GiB")
    if BEHAVIOUR == "dies-at-work":
        print("[TRT-LLM] [E] torch.AcceleratorError: CUDA error: an illegal memory access", flush=True)
        raise RuntimeError("MPI worker exited")


def _start_worker() -> None:
    """As the library's front end hears of its worker: by its error, or by its end."""
    if BEHAVIOUR == "out-of-memory":
        memory = "Executor creation failed due to insufficient GPU memory."
        raise RuntimeError("Executor worker returned error") from RuntimeError(memory)
    if BEHAVIOUR == "fails-at-start":
        raise RuntimeError("Executor worker returned error") from ValueError("the shape makes no sense")
    if BEHAVIOUR == "dies-at-start":
        raise RuntimeError("Executor worker died during initialization")


class _Output:
    def __init__(self, prompt: list[int], params: SamplingParams) -> None:
        self._arrival = time.monotonic() + 1000  # a clock of its own
        self._num_tokens = params.max_tokens
        self._stamps: list[float] = []
        self.prompt_token_ids = prompt
        self.outputs: list[Any] = []

    async def aresult(self) -> _Output:
        async for _ in self:
            pass
        return self

    async def __aiter__(self) -> AsyncIterator[_Output]:
        for count in range(1, self._num_tokens + 1):
            await asyncio.sleep(0.001)
            _misbehave_at_work()
            self._stamps.append(time.monotonic() + 1000)
            timing = _Timing(
                arrival_time=timedelta(seconds=self._arrival),
                first_token_time=timedelta(seconds=self._stamps[0]),
                last_token_time=timedelta(seconds=self._stamps[-1]),
            )
            perf = None if BEHAVIOUR == "no-times" else SimpleNamespace(timing_metrics=timing)
            self.outputs = [SimpleNamespace(token_ids=list(range(count)), request_perf_metrics=perf)]
            yield self


def _stats(one: dict[str, Any]) -> dict[str, Any]:
    recorded = RECORDED["IterationStats"]
    assert one.keys() <= set(recorded["fields"])
    for name in ("inflightBatchingStats", "kvCacheStats"):
        assert one[name].keys() <= set(recorded[name])
    return one


class LLM:
    def __init__(self, **given: Any) -> None:
        _check("LLM.__init__", given)
        assert Path(given["model"], "config.json").is_file()
        _start_worker()
        self._num_stages = given["pipeline_parallel_size"]
        self._num_sent = 0
        self._reuses = given["kv_cache_config"].reuses
        self._blocks: set[tuple[str | None, tuple[int, ...]]] = set()
        self._found = self._missed = 0
        self._waits: list[float] = []

    def generate_async(
        self,
        inputs: list[int],
        sampling_params: SamplingParams,
        streaming: bool = False,
        cache_salt: str | None = None,
    ) -> _Output:
        """With reuse, prompts of a salt spare the blocks of two tokens that they begin with alike."""
        assert isinstance(streaming, bool)
        assert self._reuses or cache_salt is None
        for end in range(2, len(inputs) + 1, 2) if self._reuses else ():
            block = (cache_salt, tuple(inputs[:end]))
            self._found += block in self._blocks
            self._missed += block not in self._blocks
            self._blocks.add(block)
        if sampling_params.end_id is None:
            raise ValueError("tokenizer is required to reset end_id if it is None, or you can explicitly specify it")
        self._num_sent += 1
        return _Output(inputs, sampling_params)

    def get_stats(self, timeout: float) -> list[dict[str, Any]]:
        """Half of the active requests have a place in the cache, spread over a pipeline's batches."""
        self._waits.append(timeout)
        sent, self._num_sent = self._num_sent, 0
        if not sent:
            return []
        counts = {"reusedBlocks": self._found, "missedBlocks": self._missed}
        cache = {"maxNumBlocks": 100, "tokensPerBlock": 32, **counts}
        one = {"numActiveRequests": sent, "gpuMemUsage": 7 * 2**30, "maxNumActiveRequests": 3}
        batches = [
            {"numScheduledRequests": sent // 2 // self._num_stages, "numPausedRequests": 0, "microBatchId": index}
            for index in range(self._num_stages)
        ]
        batches[0]["numPausedRequests"] = 1
        return [_stats({**one, "kvCacheStats": cache, "inflightBatchingStats": batch}) for batch in batches]

    def shutdown(self) -> None:
        print(f"shut down, waited {self._waits}", flush=True)


if BEHAVIOUR == "no-salt":
    _salted = LLM.generate_async

    def _unsalted(self: LLM, inputs: list[int], sampling_params: SamplingParams, streaming: bool = False) -> _Output:
        return _salted(self, inputs, sampling_params, streaming)

    LLM.generate_async = _unsalted  # type: ignore[method-assign,assignment]

for place, kinds in {
    "llmapi": (CudaGraphConfig, KvCacheConfig, TorchLlmArgs),
    "executor": (),
    "executor.utils": (RequestError,),
}.items():
    module = sys.modules[f"tensorrt_llm.{place}"] = ModuleType(f"tensorrt_llm.{place}")
    for kind in kinds:
        setattr(module, kind.__name__, kind)
