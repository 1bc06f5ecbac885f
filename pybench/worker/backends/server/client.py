"""The load generator: one streamed HTTP request each, with its times, and a name for everything that goes wrong.

Nothing that a server answers is trusted. An event has at most ``MAX_EVENT_BYTES``, a stream as many events as it has
tokens and a few more, a request ``request_limit_s``. Redirects are not followed, compressed bodies not unpacked.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from pybench.model.servers import SERVED_MODEL
from pybench.model.wire import RequestTimes
from pybench.worker.backend import WrongResultError
from pybench.worker.backends.engine import Request, drive

MAX_EVENT_BYTES = 1 << 20
"""Longest line of a stream. An event of one token has about 300 bytes."""
MAX_PAGE_BYTES = 16 << 20
"""Longest page of metrics."""
LATE_NS = 5_000_000
"""An arrival sent later than this is late: event loops wake up a millisecond late at most."""
_SPARE_EVENTS = 16  # the usage, and room for empty ones
_MOST_FAILED_FRACTION = 0.1
_FEW_FAILED = 8
"""A step ends at more failures than these few and this fraction: a broken server costs no whole step."""
_PAGE_LIMIT_S = 30.0
_MAX_WORDS = 200


class RequestError(Exception):
    """One request failed. ``cause`` is the fault's name; failures are counted by it."""

    def __init__(self, cause: str, detail: str = "") -> None:
        super().__init__(f"{cause}: {detail[:_MAX_WORDS]}" if detail else cause)
        self.cause = cause


@dataclass
class Load:
    """The outcome of a step: times of the requests that ended well, gaps between tokens, faults by name."""

    times: list[RequestTimes] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    first_fault: str = ""
    num_late: int = 0
    client_cpu_s: float = 0.0


class LoadClient:
    """Sends the requests of one point to ``url``; of a closed loop ``concurrency`` are in flight at a time."""

    def __init__(self, url: str, requests: Sequence[Request], concurrency: int | None, limit_s: float) -> None:
        self._url = url
        self._requests = requests
        self._concurrency = concurrency
        self._limit_s = limit_s
        common = {"model": SERVED_MODEL, "temperature": 1.0, "ignore_eos": True, "stream": True}
        common["stream_options"] = {"include_usage": True}
        # Each behind its opening brace. A prompt takes longer to encode than to send: its time is no part of a step.
        self._bodies = {
            each.index: json.dumps({**common, "prompt": each.prompt, "max_tokens": each.output_tokens}).encode()[1:]
            for each in requests
        }
        self._load = Load()
        self._session: aiohttp.ClientSession | None = None
        self._salt = b""

    async def open(self) -> None:
        """Open the pool of connections, which all steps share."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=self._limit_s),
            auto_decompress=False,
            headers={"Content-Type": "application/json", "Accept-Encoding": "identity"},
        )

    async def close(self) -> None:
        """Close every connection."""
        if self._session:
            await self._session.close()

    async def send_all(self, salt: tuple[str, str] | None) -> Load:
        """Send every request of a step, with the field ``salt``; returns once all have ended.

        Raises :class:`WrongResultError` when none ended well, or too many failed.
        """
        self._load = Load()
        self._salt = b"" if salt is None else json.dumps(dict([salt])).encode()[:-1] + b", "
        cpu_ns = time.process_time_ns()
        await drive(self._requests, self._concurrency, self._submit)
        self._load.client_cpu_s = (time.process_time_ns() - cpu_ns) / 1e9
        if not self._load.times:
            raise self._broken()
        return self._load

    async def page(self, path: str) -> str:
        """A page of the server's. Raises :class:`RequestError` where it has none."""
        assert self._session is not None
        limit = aiohttp.ClientTimeout(total=_PAGE_LIMIT_S)
        try:
            async with self._session.get(self._url + path, allow_redirects=False, timeout=limit) as response:
                text = bytearray()
                async for part in response.content.iter_any():
                    text += part
                    if response.status != 200 or len(text) > MAX_PAGE_BYTES:  # noqa: PLR2004 - HTTP's OK
                        break
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:  # noqa: UP041 - another one in Python 3.10
            raise RequestError("no page", f"{path}: {error!r}") from error
        if response.status != 200 or len(text) > MAX_PAGE_BYTES:  # noqa: PLR2004 - HTTP's OK
            raise RequestError("no page", f"{path}: status {response.status}, {len(text)} bytes")
        return text.decode(errors="replace")

    async def _submit(self, request: Request, arrival_ns: int) -> None:
        """One request, counted among those that ended well or by the name of its fault."""
        load = self._load
        load.num_late += time.monotonic_ns() - arrival_ns > LATE_NS
        try:
            stamps_ns = await self._stream(request)
        except RequestError as fault:
            load.faults[fault.cause] += 1
            load.first_fault = load.first_fault or f"request {request.index}: {fault}"
            if load.faults.total() > max(_FEW_FAILED, _MOST_FAILED_FRACTION * len(self._requests)):
                raise self._broken() from fault
            return
        load.gaps_s += [(later - earlier) / 1e9 for earlier, later in zip(stamps_ns, stamps_ns[1:])]  # noqa: B905, RUF007 - Python 3.10, and one is longer
        load.times.append(
            RequestTimes(
                arrival_ns=arrival_ns,
                first_token_ns=stamps_ns[0],
                last_token_ns=stamps_ns[-1],
                prompt_tokens=len(request.prompt),
                output_tokens=request.output_tokens,
            )
        )

    def _broken(self) -> WrongResultError:
        load = self._load
        counts = ", ".join(f"{count} {cause}" for cause, count in load.faults.most_common())
        return WrongResultError(
            f"{load.faults.total()} of {len(self._requests)} requests failed ({counts}); {load.first_fault}"
        )

    async def _stream(self, request: Request) -> list[int]:
        """CLOCK_MONOTONIC of each event with tokens. Raises :class:`RequestError`."""
        assert self._session is not None
        body = b"{" + self._salt[1:] + self._bodies[request.index]
        try:
            async with self._session.post(self._url + "/v1/completions", data=body, allow_redirects=False) as response:
                if location := response.headers.get("Location"):  # which is not followed
                    raise RequestError(f"redirect {response.status}", f"to {location}")
                if response.status != 200:  # noqa: PLR2004 - HTTP's OK
                    words = await response.content.read(_MAX_WORDS)
                    raise RequestError(f"status {response.status}", words.decode(errors="replace"))
                return await _read_answer(request, _payloads(response.content))
        except asyncio.TimeoutError as error:  # noqa: UP041 - another one in Python 3.10
            raise RequestError("cancelled", f"no end within {self._limit_s:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise RequestError("connection lost", repr(error)) from error


async def _payloads(content: aiohttp.StreamReader) -> AsyncIterator[tuple[int, bytes]]:
    """Data of each server-sent event, one line each, and when it came. Raises :class:`RequestError`."""
    rest = b""
    async for part in content.iter_any():
        now_ns = time.monotonic_ns()
        *lines, rest = (rest + part).split(b"\n")
        if len(rest) > MAX_EVENT_BYTES:
            raise RequestError("oversized event", f"{len(rest)} bytes without an end")
        for line in lines:
            if line.startswith(b"data:"):
                yield now_ns, line[5:].strip()
            elif line.strip() and not line.startswith((b":", b"event:", b"id:", b"retry:")):
                raise RequestError("malformed event", repr(line[:_MAX_WORDS]))


async def _read_answer(request: Request, payloads: AsyncIterator[tuple[int, bytes]]) -> list[int]:
    stamps_ns: list[int] = []
    usage: Any = None
    num_events, is_done = 0, False
    async for now_ns, payload in payloads:  # to its end, or the connection could not be used again
        if is_done:
            raise RequestError("malformed event", "data behind [DONE]")
        if payload == b"[DONE]":
            is_done = True
            continue
        num_events += 1
        if num_events > request.output_tokens + _SPARE_EVENTS:
            raise RequestError("too many events", f"{num_events} for {request.output_tokens} tokens")
        event = _event(payload)
        if event.get("choices"):
            stamps_ns.append(now_ns)
        usage = event.get("usage") or usage
    if usage is None:
        raise RequestError("broken stream", f"it ended after {len(stamps_ns)} events without its usage")
    # The server counted the tokens that were ordered, and sent no more events than that.
    ordered = {"prompt_tokens": len(request.prompt), "completion_tokens": request.output_tokens}
    counted = {name: usage.get(name) for name in ordered} if isinstance(usage, dict) else usage
    if counted != ordered:
        raise RequestError("wrong counts", f"usage {counted}, ordered {ordered}")
    if not 0 < len(stamps_ns) <= request.output_tokens:
        raise RequestError("wrong counts", f"{len(stamps_ns)} events for {request.output_tokens} tokens")
    return stamps_ns


def _event(payload: bytes) -> dict[str, Any]:
    event: Any = None
    with suppress(ValueError, RecursionError):
        event = json.loads(payload)
    if not isinstance(event, dict):
        raise RequestError("malformed event", repr(payload[:_MAX_WORDS]))
    if event.get("error"):
        raise RequestError("error event", json.dumps(event["error"]))
    return event
