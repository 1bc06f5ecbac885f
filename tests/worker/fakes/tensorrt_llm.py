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
    def __init__(self, enable_block_reuse: bool, free_gpu_memory_fraction: float) -> None:
        assert not enable_block_reuse
        self.fraction = free_gpu_memory_fraction


class SamplingParams:
    def __init__(self, **given: Any) -> None:
        _check("SamplingParams.__init__", given)
        self.max_tokens = given["max_tokens"]


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
            self._stamps.append(time.monotonic() + 1000)
            timing = SimpleNamespace(
                arrival_time=timedelta(seconds=self._arrival),
                first_token_time=timedelta(seconds=self._stamps[0]),
                last_token_time=timedelta(seconds=self._stamps[-1]),
            )
            perf = None if BEHAVIOUR == "no-times" else SimpleNamespace(timing_metrics=timing)
            self.outputs = [SimpleNamespace(token_ids=list(range(count)), request_perf_metrics=perf)]
            yield self


class LLM:
    def __init__(self, **given: Any) -> None:
        _check("LLM.__init__", given)
        assert Path(given["model"], "config.json").is_file()
        if BEHAVIOUR == "out-of-memory":
            raise RuntimeError("CUDA out of memory. Tried to allocate 8.00 GiB")
        self._num_sent = 0

    def generate_async(self, inputs: list[int], sampling_params: SamplingParams, streaming: bool = False) -> _Output:
        assert isinstance(streaming, bool)
        self._num_sent += 1
        return _Output(inputs, sampling_params)

    def get_stats(self, timeout: float) -> list[dict[str, Any]]:
        assert timeout > 0
        sent, self._num_sent = self._num_sent, 0
        cache = {"maxNumBlocks": 100, "tokensPerBlock": 32}
        batch = {"numPausedRequests": 1}
        one = {"numActiveRequests": sent, "gpuMemUsage": 7 * 2**30, "maxNumActiveRequests": 3}
        return [{**one, "kvCacheStats": cache, "inflightBatchingStats": batch}, {"numActiveRequests": 1}]

    def shutdown(self) -> None:
        print("shut down", flush=True)


sys.modules["tensorrt_llm.llmapi"] = ModuleType("tensorrt_llm.llmapi")
for kind in (KvCacheConfig, TorchLlmArgs):
    setattr(sys.modules["tensorrt_llm.llmapi"], kind.__name__, kind)
