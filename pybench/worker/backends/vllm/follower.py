"""A host's part of an engine that the first host of a replica drives: its workers, which take orders from there alone.

What ``vllm serve --headless`` starts there (``run_headless`` in vllm/entrypoints/cli/serve.py of 0.20.2), without Ray.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from vllm.engine.arg_utils import EngineArgs
from vllm.usage.usage_lib import UsageContext
from vllm.v1.executor.multiproc_executor import MultiprocExecutor

from pybench.model.wire import Metric, Work
from pybench.worker.backend import StepOutcome
from pybench.worker.backends.engine.requests import Request


class Follower:
    """This host's workers. Started as those of the first host are: both wait until all have met."""

    def __init__(self, arguments: dict[str, Any], *, is_batch: bool) -> None:
        # The context chooses the default sizes of a batch, which both hosts must have.
        context = UsageContext.LLM_CLASS if is_batch else UsageContext.OPENAI_API_SERVER
        config = EngineArgs(**arguments).create_engine_config(usage_context=context, headless=True)
        self._is_left = False
        self._executor: Any = MultiprocExecutor(config, monitor_workers=False)
        self._executor.register_failure_callback(self._failed)
        self._executor.start_worker_monitor()

    def leave(self) -> None:
        """From now on workers may end with the engine that drives them."""
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


class Following:
    """The steps of one point as this host sees them: the first host's requests, driven from there."""

    def __init__(self, requests: tuple[Request, ...]) -> None:
        self._work = Work(
            prompt_tokens=sum(len(request.prompt) for request in requests),
            output_tokens=sum(request.output_tokens for request in requests),
            samples=len(requests),
        )

    def step(self, _index: int) -> StepOutcome:
        """Nothing to drive: the barrier behind a step waits for the first host."""
        return StepOutcome(work=self._work)

    def metrics(self) -> tuple[Metric, ...]:
        """The first host reports those of all workers."""
        return ()
