"""The tensorrt_llm backend: join the replicas, start an engine, generate."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from typing import Any

import tensorrt_llm
from tensorrt_llm import LLM, SamplingParams
from tensorrt_llm.executor.utils import RequestError
from tensorrt_llm.llmapi import CudaGraphConfig, KvCacheConfig, TorchLlmArgs

from pybench.model.backend import BACKENDS
from pybench.model.tuning import LOOPBACK
from pybench.model.wire import Metric, RequestTimes, WorkOrder, work_of
from pybench.model.workloads.generate import Generate, decided_arguments, gap_values
from pybench.worker.backend import EngineError, Session, StepOutcome, UnsupportedError, generation_of
from pybench.worker.backends.engine import Request, RequestedWork, config_folder, drive, joined_replica, merged
from pybench.worker.backends.tensorrt_llm.translation import (
    GRAPHS,
    KEPT_ITERATIONS,
    Iterations,
    cache_arguments,
    engine_arguments,
    graph_arguments,
)
from pybench.worker.ranks import Ranks


@contextmanager
def engine_works() -> Iterator[None]:
    """Raise :class:`EngineError` for an error that the library passes on from its worker.

    ``RequestError`` is a step's that failed, by request; any other ``RuntimeError`` the worker's own end.
    """
    try:
        yield
    except RequestError as error:
        raise EngineError(f"TensorRT-LLM's worker failed at work: {error}") from error
    except RuntimeError as error:
        raise EngineError(f"TensorRT-LLM's worker died at work: {type(error).__name__}: {error}") from error


# How long get_stats may wait for iterations still on their way, in s: versions that get them through a queue wait all
# of it after the last one, with an idle GPU. What comes too late for a step counts for the next, which does the same.
_WAIT_BETWEEN_STEPS_S = 0.0
_WAIT_AT_END_S = 2.0
# Its word for what keeps one step's prefixes from another's, also where its prompts come again.
_SALT = "cache_salt"
# Without a tokenizer the library wants these; no token has this id.
_NO_TOKEN = -1


class TensorrtEngine:
    """The library's engine and the event loop that waits for it."""

    def __init__(self, settings: Generate, arguments: dict[str, Any]) -> None:
        self.loop = asyncio.new_event_loop()
        if settings.prefix_caching and _SALT not in inspect.signature(LLM.generate_async).parameters:
            raise UnsupportedError(f"prefix_caching needs a newer TensorRT-LLM, whose generate_async takes {_SALT}")
        self.llm: Any = LLM(**arguments, kv_cache_config=KvCacheConfig(**cache_arguments(settings)))
        self.num_points = 0
        self.num_steps = 0


class TensorrtGeneration(RequestedWork):
    """An engine and the requests of every step of one point."""

    def __init__(self, order: WorkOrder, engine: TensorrtEngine, replica: int) -> None:
        super().__init__(order, replica)
        settings = self.settings
        self._engine = engine
        # A token's own time is known to who streams it alone; an offline batch need not pay for that.
        self._streaming = not settings.is_batch
        self._caches = bool(settings.prefix_caching)
        self._gaps_s: list[float] = []
        # It reports all memory that the engine's processes hold, also what another point made them take.
        self._iterations = Iterations(
            tell_memory=engine.num_points == 0,
            num_stages=settings.pipeline_parallel,
            caches_prefixes=self._caches,
        )
        engine.num_points += 1

    def step(self, _index: int) -> StepOutcome:
        """Generate for every request."""
        self._gaps_s = []
        self._engine.num_steps += 1
        with engine_works():
            times = self._engine.loop.run_until_complete(drive(self.requests, self.concurrency, self._submit))
        return StepOutcome(
            work=work_of(times),
            requests=tuple(times),
            values=gap_values(self._gaps_s),
            late_values=lambda: self._take_stats(_WAIT_BETWEEN_STEPS_S),
        )

    def _take_stats(self, wait_s: float) -> dict[str, float]:
        with engine_works():
            return self._iterations.take(self._engine.llm.get_stats(wait_s))

    async def _submit(self, request: Request, arrival_ns: int) -> RequestTimes:
        params = SamplingParams(
            max_tokens=request.output_tokens,
            temperature=1.0,
            top_p=1.0,
            ignore_eos=True,
            end_id=_NO_TOKEN,
            pad_id=_NO_TOKEN,
            detokenize=False,
            return_perf_metrics=True,
        )
        sent_ns = time.monotonic_ns()
        salt = {_SALT: f"step {self._engine.num_steps}"} if self._caches else {}
        output = self._engine.llm.generate_async(request.prompt, params, streaming=self._streaming, **salt)
        if self._streaming:
            stamps_s = [time.monotonic() async for _ in output]
            self._gaps_s += [later - earlier for earlier, later in pairwise(stamps_s)]
        else:
            await output.aresult()
        return times_of(output, len(request.prompt), arrival_ns, sent_ns)

    def metrics(self) -> tuple[Metric, ...]:
        """The engine's report of its memory."""
        self._take_stats(_WAIT_AT_END_S)
        return self._iterations.metrics(self.wanted)


def times_of(output: Any, prompt_tokens: int, arrival_ns: int, sent_ns: int) -> RequestTimes:
    """Times of one finished request, by the engine's stamps, which are counted from when the request reached it.

    Their clock is not ours to know; the way from here to there, well below a millisecond, is left out. Raises
    :class:`EngineError` when the engine kept no times.
    """
    completion = output.outputs[0]
    metrics = completion.request_perf_metrics
    if metrics is None:
        raise EngineError("TensorRT-LLM kept no times of a request: it needs 1.0 or newer with its PyTorch backend")
    timing = metrics.timing_metrics
    first, last = (
        sent_ns + round((stamp - timing.arrival_time).total_seconds() * 1e9)
        for stamp in (timing.first_token_time, timing.last_token_time)
    )
    return RequestTimes(
        arrival_ns=arrival_ns,
        first_token_ns=first,
        last_token_ns=last,
        prompt_tokens=prompt_tokens,
        output_tokens=len(completion.token_ids),
    )


join = joined_replica


@contextmanager
def prepare(order: WorkOrder, ranks: Ranks) -> Iterator[Session]:
    """Start an engine with random weights for the order's shape."""
    settings, architecture = generation_of(order)
    for name, value in LOOPBACK.items():
        os.environ.setdefault(name, value)
    with config_folder(architecture, settings.dtype, settings.quantization) as folder:
        ours = engine_arguments(settings, folder)
        valid = set(TorchLlmArgs.model_fields)
        if "max_stats_len" in valid:  # since 1.2
            ours["max_stats_len"] = KEPT_ITERATIONS
        decided = decided_arguments("tensorrt_llm", Generate) | (
            {GRAPHS: "enforce_eager"} if settings.enforce_eager else {}
        )
        given = merged(ours, settings.engine_args, valid, f"tensorrt_llm {tensorrt_llm.__version__}", decided)
        graphs = graph_arguments(settings)
        try:
            engine = TensorrtEngine(settings, {**given, GRAPHS: None if graphs is None else CudaGraphConfig(**graphs)})
        except RuntimeError as error:
            if not any(words in str(error) for words in BACKENDS["tensorrt_llm"].log_not_started):
                raise
            cause = error.__cause__ or error
            raise EngineError(f"TensorRT-LLM's worker did not start: {type(cause).__name__}: {cause}") from error
        try:
            yield lambda point: nullcontext(TensorrtGeneration(point, engine, ranks.rank))
        finally:
            engine.llm.shutdown()
            engine.loop.close()
