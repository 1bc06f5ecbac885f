"""What broke an engine, from the log: its own processes know, the worker that waits for them does not."""

from __future__ import annotations

import re
from dataclasses import replace

from pybench.model.wire import Failure

_ERROR = re.compile(r"\b(?:[\w.]*\.)?[A-Z]\w*(?:Error|Exception|Exit)\b: .+")
# What the engine's front end says of a death that it only heard of.
_ECHOES = (
    "Engine core initialization failed",
    "EngineCore encountered an issue",
    "EngineDeadError",
    "EngineError",
    "Executor worker returned error",
    "Executor worker died during initialization",
)
# vllm/v1/executor/multiproc_executor.py says so of a worker that was killed; the errors that follow are all its echoes.
_DEATH = re.compile(r"Worker proc \S+ died unexpectedly")
# vllm/v1/core/kv_cache_utils.py and vllm/v1/worker/utils.py refuse to start with too little room in these words, but
# for the last, which are TensorRT-LLM's.
_MEMORY = (
    "out of memory",
    "no available memory",
    "available kv cache memory",
    "free memory on device",
    "outofmemory",
    "insufficient gpu memory",
)
_MAX_WORDS = 400


def root_cause(failure: Failure, log: str) -> Failure:
    """``failure`` with the engine's last own word of it in its message, and as out of memory where that says so."""
    if failure.cause != "engine":
        return failure
    told = [found[0].strip() for line in log.splitlines() if (found := _ERROR.search(line))]
    errors = [error for error in told if not any(echo in error for echo in _ECHOES)]
    memory = next((error for error in errors if any(word in error.lower() for word in _MEMORY)), None)
    death = found[0] if (found := _DEATH.search(log)) else None
    word = memory or death or next(reversed(errors), None)
    if word is None:
        return replace(failure, detail=log)
    cause = "out_of_memory" if memory else failure.cause
    return replace(failure, cause=cause, message=f"{failure.message}: {word[:_MAX_WORDS]}", detail=log)
