"""The server backend: join the replicas, start a server for each, send it its share of the load."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from pybench.model.servers import server_of
from pybench.model.wire import Metric, WorkOrder
from pybench.model.workloads.generate import Generate
from pybench.worker.backend import Session, StepOutcome, WrongResultError, generation_of
from pybench.worker.backends.engine.requests import draw_requests, gap_values, own_concurrency, work_of
from pybench.worker.backends.engine.start import config_folder, joined_replica
from pybench.worker.backends.server.client import LoadClient, RequestError
from pybench.worker.backends.server.process import Server, served
from pybench.worker.ranks import Ranks

join = joined_replica

_CORES_A_REPLICA = 4
"""With fewer cores for each replica the load generator shares those of its server."""


class ServerLoad:
    """A server, and the requests of every step of one point."""

    def __init__(self, server: Server, settings: Generate, vocab_size: int, replica: int) -> None:
        self._server = server
        self._traits = server_of(settings)
        self._caches = bool(settings.prefix_caching)
        requests = draw_requests(settings, vocab_size, replica)
        self._num_requests = len(requests)
        concurrency = None if settings.request_rate_per_s else own_concurrency(settings) or len(requests)
        self._loop = asyncio.new_event_loop()
        self._client = LoadClient(server.url, requests, concurrency, settings.request_limit_s)
        self._loop.run_until_complete(self._client.open())
        self._counters = self._read_counters()

    def step(self, _index: int) -> StepOutcome:
        """Send every request, and wait for all of them."""
        start_ns = time.monotonic_ns()
        salt = None
        if self._caches and self._traits.salt:
            self._server.num_steps += 1
            salt = (self._traits.salt, f"step {self._server.num_steps}")
        try:
            load = self._loop.run_until_complete(self._client.send_all(salt))
        except WrongResultError as error:
            self._server.check()
            words = self._server.last_words()
            raise WrongResultError(f"{error}; the server's last words: {words}" if words else str(error)) from error
        return StepOutcome(
            work=work_of(load.times),
            requests=tuple(load.times),
            values={
                **gap_values(load.gaps_s),
                "num_failed_requests": float(load.faults.total()),
                "num_cancelled_requests": float(load.faults["cancelled"]),
                "late_arrival_fraction": load.num_late / self._num_requests,
                "client_cpu_fraction": load.client_cpu_s / ((time.monotonic_ns() - start_ns) / 1e9),
            },
            late_values=self._server_values,
        )

    def metrics(self) -> tuple[Metric, ...]:
        """All there is to report comes with the steps."""
        return ()

    def close(self) -> None:
        """Close the connections."""
        self._loop.run_until_complete(self._client.close())
        self._loop.close()

    def _server_values(self) -> dict[str, float]:
        """The increase of the server's own counters in the step that ended."""
        before, self._counters = self._counters, self._read_counters()
        return increases(self._traits.metrics, before, self._counters)

    def _read_counters(self) -> dict[str, float]:
        if not self._traits.metrics:
            return {}
        try:
            page = self._loop.run_until_complete(self._client.page(self._traits.metrics_path))
        except RequestError as fault:
            print("server metrics:", fault, flush=True)  # noqa: T201 - standard output is the attempt's log
            return {}
        return counters(page, {name for names in self._traits.metrics.values() for name in names})


def counters(page: str, names: Collection[str]) -> dict[str, float]:
    """Sums of those counters of a page in Prometheus's text format; names that it lacks are missing."""
    sums: dict[str, float] = {}
    for line in page.splitlines():
        name, separator, _ = line.partition("{")
        if not separator:
            name = line.partition(" ")[0]
        if name in names:
            with suppress(ValueError):
                sums[name] = sums.get(name, 0.0) + float(line.rpartition("}")[2].split()[0 if separator else 1])
    return sums


def increases(
    metrics: Mapping[str, tuple[str, ...]], before: Mapping[str, float], after: Mapping[str, float]
) -> dict[str, float]:
    """Each metric's increase, divided by that of its second counter if it has one; unknown ones are missing."""
    values = {}
    for metric, names in metrics.items():
        if all(name in before and name in after for name in names):
            amount, *divisors = (after[name] - before[name] for name in names)
            if amount >= 0 and all(divisor > 0 for divisor in divisors):
                values[metric] = amount / divisors[0] if divisors else amount
    return values


@contextmanager
def prepare(order: WorkOrder, ranks: Ranks) -> Iterator[Session]:
    """Start this replica's server on a model with random weights."""
    settings, architecture = generation_of(order)
    client_cores, server_cores = _split_cores(ranks)
    with config_folder(architecture, settings.dtype) as folder:
        _write_tokenizer(folder, architecture["vocab_size"])
        os.sched_setaffinity(0, server_cores)  # which the server inherits
        with served(settings, folder) as server:
            os.sched_setaffinity(0, client_cores)
            yield partial(_generation, server=server, replica=ranks.rank)


@contextmanager
def _generation(order: WorkOrder, server: Server, replica: int) -> Iterator[ServerLoad]:
    settings, architecture = generation_of(order)
    load = ServerLoad(server, settings, architecture["vocab_size"], replica)
    try:
        yield load
    finally:
        load.close()


def _split_cores(ranks: Ranks) -> tuple[set[int], set[int]]:
    """The core of this replica's load generator, and those of the server: the last cores are load generators'."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < _CORES_A_REPLICA * ranks.world_size:
        return set(cores), set(cores)
    return {cores[-1 - ranks.rank]}, set(cores[: -ranks.world_size])


def _write_tokenizer(folder: Path, vocab_size: int) -> None:
    """A tokenizer with a word for each token, in the form of ``tokenizers``: every token of an answer is a text."""
    special = ("<unk>", "<s>", "</s>")
    vocabulary = {special[token] if token < len(special) else f"t{token}": token for token in range(vocab_size)}
    added = [
        {"id": token, "content": word, "special": True, "single_word": False, "lstrip": False, "rstrip": False}
        | {"normalized": False}
        for token, word in enumerate(special)
    ]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    words = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({**names, **words}), encoding="utf-8")
