"""A server without a model: the OpenAI protocol over HTTP, its delays and its faults as ordered. For tests and demos.

It needs Python and aiohttp. Every request gets its first token after ``--prefill-ms``, another every ``--decode-ms``
over ``--tensor-parallel-size``; ``--max-num-seqs`` run at a time. ``--fault NAME`` breaks every ``--fault-every``-th
answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import AsyncIterator

from aiohttp import web

FAULTS = (
    *("status_500", "status_429", "redirect", "malformed", "not_an_object", "error_event", "half_stream", "reset"),
    *("wrong_counts", "too_many_events", "oversized_event", "after_done", "hang", "exit"),
)
_MODEL_BYTES = 64 * 1024 * 1024  # largest request: a prompt of a million tokens
_GIGABYTE = 1 << 30


class Stub:
    """Answers as the command line has it, and counts as a server's metrics do."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._prefill_s = arguments.prefill_ms / 1e3
        self._decode_s = arguments.decode_ms / 1e3 / arguments.tensor_parallel_size
        self._fault = arguments.fault
        self._fault_every = arguments.fault_every
        self._room = asyncio.Semaphore(arguments.max_num_seqs)
        self._num_requests = 0
        self._sums = {"time_to_first_token_seconds": [0.0, 0], "inter_token_latency_seconds": [0.0, 0]}

    async def health(self, _request: web.Request) -> web.Response:
        """Ready at once."""
        return web.Response(text="")

    async def metrics(self, _request: web.Request) -> web.Response:
        """Sum and count of each latency."""
        lines = [
            f'stub:{name}_{kind}{{model_name="stub"}} {value}'
            for name, pair in self._sums.items()
            for kind, value in zip(("sum", "count"), pair)  # noqa: B905 - Python 3.10
        ]
        return web.Response(text="\n".join([*lines, ""]))

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Stream as many tokens as the request orders."""
        order = await request.json()
        self._num_requests += 1
        fault = self._fault if self._num_requests % self._fault_every == 0 else None
        if fault and fault.startswith("status_"):
            return web.Response(status=int(fault[len("status_") :]), text="no room\n" * 1000)
        if fault == "redirect":
            return web.Response(status=307, headers={"Location": "http://192.0.2.1/v1/completions"})
        if fault == "exit":
            os._exit(3)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        async with self._room:
            async for data in self._events(order, fault):
                await response.write(data)
        if fault == "reset" and request.transport is not None:
            request.transport.abort()
        return response

    async def _events(self, order: dict[str, object], fault: str | None) -> AsyncIterator[bytes]:
        prompt, num_tokens = order["prompt"], order["max_tokens"]
        assert isinstance(prompt, list)
        assert isinstance(num_tokens, int)
        began = last = time.monotonic()
        for token in range(num_tokens):
            if delay_s := self._decode_s if token else self._prefill_s:
                await asyncio.sleep(delay_s)
            now = time.monotonic()
            pair = self._sums["inter_token_latency_seconds" if token else "time_to_first_token_seconds"]
            pair[0], pair[1], last = pair[0] + now - (last if token else began), pair[1] + 1, now
            if token == num_tokens // 2:
                async for data in _broken(fault):
                    yield data
                if fault in {"half_stream", "reset"}:
                    return
            yield _event({"choices": [{"index": 0, "text": f" t{token}", "finish_reason": None}]})
        counted = num_tokens + (fault == "wrong_counts")
        usage = {"prompt_tokens": len(prompt), "completion_tokens": counted, "total_tokens": len(prompt) + counted}
        yield _event({"choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"
        if fault == "after_done":
            yield _event({"choices": [{"index": 0, "text": "x"}]})


def _event(fields: dict[str, object]) -> bytes:
    return (
        b"data: "
        + json.dumps({"id": "cmpl-stub", "object": "text_completion", "model": "stub", **fields}).encode()
        + b"\n\n"
    )


async def _broken(fault: str | None) -> AsyncIterator[bytes]:
    """Bytes of a fault in the middle of an answer."""
    if fault == "malformed":
        yield b'data: {"choices": [\n\n'
    elif fault == "not_an_object":
        yield b"data: [1, 2]\n\n"
    elif fault == "error_event":
        yield _event({"error": {"message": "engine died", "code": 500}})
    elif fault == "hang":
        await asyncio.sleep(86400)
    elif fault == "too_many_events":
        for _ in range(100_000):
            yield _event({"choices": [{"index": 0, "text": "x"}]})
    elif fault == "oversized_event":
        yield b"data: "
        for _ in range(_GIGABYTE // (1 << 16)):
            yield b"x" * (1 << 16)


def main() -> None:
    """Serve until a signal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--prefill-ms", type=float, default=5.0)
    parser.add_argument("--decode-ms", type=float, default=1.0)
    parser.add_argument("--tensor-parallel-size", type=int, default=1)
    parser.add_argument("--max-num-seqs", type=int, default=1024)
    parser.add_argument("--fault", choices=FAULTS)
    parser.add_argument("--fault-every", type=int, default=1)
    arguments = parser.parse_args()
    stub = Stub(arguments)
    application = web.Application(client_max_size=_MODEL_BYTES)
    application.router.add_get("/health", stub.health)
    application.router.add_get("/metrics", stub.metrics)
    application.router.add_post("/v1/completions", stub.complete)
    web.run_app(application, host="127.0.0.1", port=arguments.port, print=None, access_log=None, shutdown_timeout=0.1)


if __name__ == "__main__":
    main()
