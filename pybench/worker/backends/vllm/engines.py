"""vLLM's engines: of a server, and of offline batches, which ``vllm.LLM`` and ``vllm bench throughput`` use."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import vllm
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs, EngineArgs
from vllm.sampling_params import RequestOutputKind
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.executor.multiproc_executor import MultiprocExecutor

from pybench.model.backend import BACKENDS
from pybench.model.wire import RequestTimes, WorkOrder, work_of
from pybench.model.workloads.generate import Generate, decided_arguments, drawn_lengths
from pybench.model.workloads.turn import Turn
from pybench.worker.backend import EngineError, StepOutcome
from pybench.worker.backends.engine import Request, RequestedWork, drive, merged
from pybench.worker.backends.vllm.translation import Iterations, prompt_of, salts, times_of

_NOT_STARTED = BACKENDS["vllm"].log_not_started


@contextmanager
def engine_errors() -> Iterator[None]:
    """Raise :class:`EngineError` for an error that vLLM raises because another of its processes failed."""
    try:
        yield
    except EngineDeadError as error:
        raise EngineError("vLLM's engine process died at work") from error
    except RuntimeError as error:
        if not any(words in str(error) for words in _NOT_STARTED):
            raise
        raise EngineError("vLLM's engine process did not start") from error


class ServingEngine:
    """Closed or open loop. Times are the engine's own stamps, so nothing need be streamed to read them."""

    @engine_errors()
    def __init__(self, arguments: dict[str, Any], iterations: Iterations) -> None:
        self._loop = asyncio.new_event_loop()
        self._num_sent = 0
        self._salts = salts(arguments)
        self._salt: str | None = None

        async def start() -> Any:  # inside the loop
            return AsyncLLM.from_engine_args(
                AsyncEngineArgs(**arguments),
                usage_context=UsageContext.OPENAI_API_SERVER,
                stat_loggers=[lambda _config, _index: iterations],
            )

        self.engine: Any = self._loop.run_until_complete(start())

    @engine_errors()
    def generate(self, requests: tuple[Request, ...], concurrency: int | None) -> list[RequestTimes]:
        """Send every request at its moment; returns their times once all have ended."""
        self._salt = next(self._salts)
        return self._loop.run_until_complete(drive(requests, concurrency, self._submit))

    async def _submit(self, request: Request, arrival_ns: int) -> RequestTimes:
        self._num_sent += 1
        params = sampling(request.output_tokens)
        outputs = self.engine.generate(prompt_of(request.prompt, self._salt), params, request_id=str(self._num_sent))
        last = [output async for output in outputs if output.finished]
        if not last:
            raise EngineError(f"vLLM ended request {request.index} without an output")
        return times_of(last[-1], arrival_ns)

    @engine_errors()
    def ask_workers(self, method: str, *arguments: object) -> list[Any]:
        """Call ``method`` of our extension in each of the engine's workers; returns their answers."""
        answers: list[Any] = self._loop.run_until_complete(self.engine.collective_rpc(method, args=arguments))
        return answers

    def close(self) -> None:
        """End the engine's processes."""
        self.engine.shutdown()
        self._loop.close()


class Follower:
    """This host's workers. Started as those of the first host are: both wait until all have met."""

    @engine_errors()
    def __init__(self, arguments: dict[str, Any], *, is_batch: bool) -> None:
        # The context chooses the default sizes of a batch, which both hosts must have.
        context = UsageContext.LLM_CLASS if is_batch else UsageContext.OPENAI_API_SERVER
        config = EngineArgs(**arguments).create_engine_config(usage_context=context, headless=True)
        self._is_left = False
        self._executor: Any = MultiprocExecutor(config, monitor_workers=False)
        self._executor.register_failure_callback(self._failed)
        self._executor.start_worker_monitor()

    def leave(self) -> None:
        """Let workers end with the engine that drives them."""
        self._is_left = True

    def close(self) -> None:
        """End the workers."""
        self.leave()
        self._executor.shutdown()

    def _failed(self) -> None:
        if not self._is_left:
            # This process waits for the other hosts, which wait for the worker: only its end is seen.
            print("a worker of vLLM on this host died unexpectedly", file=sys.stderr, flush=True)  # noqa: T201
            os._exit(1)


class Following(RequestedWork):
    """The steps of one point as this host sees them: the first host's requests, driven and reported from there."""

    def __init__(self, order: WorkOrder, replica: int) -> None:
        super().__init__(order, replica)
        self._work = work_of(tuple(drawn_lengths(self.settings, replica)))

    def step(self, _index: int) -> StepOutcome:
        """Return at once: the barrier after a step waits for the first host."""
        return StepOutcome(work=self._work)


class BatchEngine:
    """All requests at once: every one arrives when the step begins. ``iterations`` gets its statistics, if any."""

    @engine_errors()
    def __init__(self, arguments: dict[str, Any], iterations: Iterations | None = None) -> None:
        # As vllm.LLM does: the context chooses the default sizes of a batch.
        self.engine: Any = LLMEngine.from_engine_args(
            EngineArgs(**arguments),
            usage_context=UsageContext.LLM_CLASS,
            stat_loggers=[] if iterations is None else [lambda _config, _index: iterations],
        )
        self._num_sent = 0
        self._salts = salts(arguments)

    def generate(self, requests: tuple[Request, ...], _concurrency: int | None) -> list[RequestTimes]:
        """Send every request, run the engine until all have ended; returns their times."""
        arrival_ns = time.monotonic_ns()
        salt = next(self._salts)
        work = [(prompt_of(request.prompt, salt), sampling(request.output_tokens)) for request in requests]
        return [times_of(output, arrival_ns) for output in self.run(work)]

    @engine_errors()
    def run(
        self,
        work: Sequence[tuple[Any, Any]],
        adapter: Any = None,
        halfway: Callable[[], None] | None = None,
        after: int = 0,
    ) -> list[Any]:
        """Run prompts with their sampling parameters to their end; vLLM's outputs in the prompts' order.

        ``halfway`` is called between two iterations, ``after`` so many of them.
        """
        with_adapter = {} if adapter is None else {"lora_request": adapter}
        for prompt, params in work:
            self._num_sent += 1
            self.engine.add_request(str(self._num_sent), prompt, params, **with_adapter)
        ended, num_iterations = [], 0
        while self.engine.has_unfinished_requests():
            ended += [output for output in self.engine.step() if output.finished]
            num_iterations += 1
            if halfway is not None and num_iterations >= after:
                halfway()
                halfway = None
        if len(ended) != len(work):
            raise EngineError(f"vLLM ended {len(ended)} of {len(work)} requests, and has no more; see its log")
        return sorted(ended, key=lambda output: int(output.request_id))

    @engine_errors()
    def ask_workers(self, method: str, *arguments: object) -> list[Any]:
        """Call ``method`` of our extension in each of the engine's workers; returns their answers."""
        answers: list[Any] = self.engine.collective_rpc(method, args=arguments)
        return answers

    def close(self) -> None:
        """End the engine's processes."""
        self.engine.engine_core.shutdown()


def completed(ours: dict[str, Any], settings: Generate | Turn) -> dict[str, Any]:
    """Keywords of ``EngineArgs`` with those of the suite. Raises :class:`UnsupportedError` for any that vLLM lacks."""
    valid = {field.name for field in dataclasses.fields(EngineArgs)}
    decided = decided_arguments("vllm", type(settings))
    return merged(ours, settings.engine_args, valid, f"vllm {vllm.__version__}", decided)


def sampling(output_tokens: int, **options: Any) -> Any:
    """As ``vllm bench throughput`` samples, without text: exactly ``output_tokens`` tokens, at temperature 1."""
    fixed = {"n": 1, "temperature": 1.0, "top_p": 1.0, "ignore_eos": True, "detokenize": False}
    return SamplingParams(max_tokens=output_tokens, output_kind=RequestOutputKind.FINAL_ONLY, **fixed, **options)
