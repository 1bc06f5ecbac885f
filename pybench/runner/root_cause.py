"""What broke an engine, from the log: its own processes know, the worker that waits for them does not.

A log is untrusted: every search here takes time in proportion to its length.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import replace

from pybench.model.backend import BACKENDS, is_out_of_memory
from pybench.model.wire import Failure

_WORD = string.ascii_letters + string.digits + "_."
_ERRORS = ("Error", "Exception", "Exit")
_LOG_WORDS = tuple(traits.log_words for traits in BACKENDS.values())
# Errors that report another error: those of engines, and the worker's own.
_ECHOES = ("EngineError", *(echo for words in _LOG_WORDS for echo in (*words.not_started, *words.echoes)))
_MAX_WORDS = 400


def root_cause(failure: Failure, log: str) -> Failure:
    """``failure`` with the engine's last own error in its message, and as out of memory where that error is one."""
    if failure.cause != "engine":
        return failure
    lines = log.splitlines()
    reported = [error for line in lines if (error := _error(line))]
    errors = [error for error in reported if not any(echo in error for echo in _ECHOES)]
    memory = next((error for error in errors if is_out_of_memory(error)), None)
    # A process's death explains the errors that follow it.
    cause = memory or next(_deaths(lines), None) or next(reversed(errors), None)
    if cause is None:
        return replace(failure, detail=log)
    message = f"{failure.message}: {cause[:_MAX_WORDS]}"
    return replace(failure, cause="out_of_memory" if memory else failure.cause, message=message, detail=log)


def _error(line: str) -> str | None:
    """The part of a line that names an exception and its message: ``torch.OutOfMemoryError: CUDA out of memory``."""
    start = 0
    while (colon := line.find(": ", start)) >= 0:
        before = line[start:colon]
        word = before[len(before.rstrip(_WORD)) :]
        name = word.rpartition(".")[2]
        if name[:1].isupper() and name.endswith(_ERRORS) and len(line) > colon + 2:
            return line[colon - len(word) :].strip()
        start = colon + 2
    return None


def _deaths(lines: list[str]) -> Iterator[str]:
    """Reports of killed processes: a phrase around one word, the process's name."""
    for begin, end in (words.death for words in _LOG_WORDS if words.death):
        for line in lines:
            start, stop = line.find(begin), line.find(end)
            name = line[start + len(begin) : stop]
            if 0 <= start < stop and name and " " not in name:
                yield line[start : stop + len(end)]
