"""Offline batches, through the engine that ``vllm.LLM`` and ``vllm bench throughput`` use."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import RequestOutputKind
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.llm_engine import LLMEngine

from pybench.model.wire import RequestTimes
from pybench.worker.backend import EngineError
from pybench.worker.backends.engine.requests import Request
from pybench.worker.backends.vllm.arguments import Salts, prompt_of
from pybench.worker.backends.vllm.iterations import Iterations, times_of


class BatchEngine:
    """All requests at once: every one arrives when the step begins. ``iterations`` gets its statistics, if any."""

    def __init__(self, arguments: dict[str, Any], iterations: Iterations | None = None) -> None:
        # As vllm.LLM does: the context chooses the default sizes of a batch.
        self.engine: Any = LLMEngine.from_engine_args(
            EngineArgs(**arguments),
            usage_context=UsageContext.LLM_CLASS,
            stat_loggers=[] if iterations is None else [lambda _config, _index: iterations],
        )
        self._num_sent = 0
        self._salts = Salts(arguments)

    def generate(self, requests: tuple[Request, ...], _concurrency: int | None) -> list[RequestTimes]:
        """Send every request, run the engine until all have ended; returns their times."""
        arrival_ns = time.monotonic_ns()
        kind, salt = RequestOutputKind.FINAL_ONLY, self._salts.next()
        work = [(prompt_of(request.prompt, salt), sampling(request, kind)) for request in requests]
        return [times_of(output, arrival_ns) for output in self.run(work)]

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

    def ask_workers(self, method: str, *arguments: object) -> list[Any]:
        """Call ``method`` of our extension in each of the engine's workers; returns their answers."""
        answers: list[Any] = self.engine.collective_rpc(method, args=arguments)
        return answers

    def close(self) -> None:
        """End the engine's processes."""
        self.engine.engine_core.shutdown()


def sampling(request: Request, kind: Any) -> Any:
    """As ``vllm bench throughput`` samples, without text: exactly so many tokens, whatever they are."""
    return SamplingParams(
        n=1,
        temperature=1.0,
        top_p=1.0,
        ignore_eos=True,
        max_tokens=request.output_tokens,
        detokenize=False,
        output_kind=kind,
    )
