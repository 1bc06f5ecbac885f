"""Requests as they come, through the engine that ``vllm serve`` uses, in the same process."""

from __future__ import annotations

import asyncio
from typing import Any

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.sampling_params import RequestOutputKind
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM

from pybench.model.wire import RequestTimes
from pybench.worker.backend import EngineError
from pybench.worker.backends.engine.load import drive
from pybench.worker.backends.engine.requests import Request
from pybench.worker.backends.vllm.arguments import Salts, prompt_of
from pybench.worker.backends.vllm.batch import sampling
from pybench.worker.backends.vllm.iterations import Iterations, times_of


class ServingEngine:
    """Closed or open loop. Times are the engine's own stamps, so nothing need be streamed to read them."""

    def __init__(self, arguments: dict[str, Any], iterations: Iterations) -> None:
        self._loop = asyncio.new_event_loop()
        self._num_sent = 0
        self._salts = Salts(arguments)
        self._salt: str | None = None
        self.engine: Any = self._loop.run_until_complete(self._start(arguments, iterations))

    async def _start(self, arguments: dict[str, Any], iterations: Iterations) -> Any:
        return AsyncLLM.from_engine_args(
            AsyncEngineArgs(**arguments),
            usage_context=UsageContext.OPENAI_API_SERVER,
            stat_loggers=[lambda _config, _index: iterations],
        )

    def generate(self, requests: tuple[Request, ...], concurrency: int | None) -> list[RequestTimes]:
        """Send every request at its moment; returns their times once all have ended."""
        self._salt = self._salts.next()
        return self._loop.run_until_complete(drive(requests, concurrency, self._submit))

    async def _submit(self, request: Request, arrival_ns: int) -> RequestTimes:
        self._num_sent += 1
        params = sampling(request, RequestOutputKind.FINAL_ONLY)
        outputs = self.engine.generate(prompt_of(request.prompt, self._salt), params, request_id=str(self._num_sent))
        last = [output async for output in outputs if output.finished]
        if not last:
            raise EngineError(f"vLLM ended request {request.index} without an output")
        return times_of(last[-1], arrival_ns)

    def ask_workers(self, method: str, *arguments: object) -> list[Any]:
        """Call ``method`` of our extension in each of the engine's workers; returns their answers."""
        answers: list[Any] = self._loop.run_until_complete(self.engine.collective_rpc(method, args=arguments))
        return answers

    def close(self) -> None:
        """End the engine's processes."""
        self.engine.shutdown()
        self._loop.close()
