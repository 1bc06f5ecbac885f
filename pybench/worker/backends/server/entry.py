"""The server backend: join the replicas, start a server for each, send it its share of the load."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from pybench.model.servers import server_command, server_config, server_of
from pybench.model.tuning import LOOPBACK
from pybench.model.wire import SHARED_VARIABLE, WorkOrder, work_of
from pybench.model.workloads.generate import Generate, gap_values
from pybench.worker.backend import EngineError, Session, StepOutcome, WrongResultError, generation_of
from pybench.worker.backends.engine import RequestedWork, config_folder, joined_replica
from pybench.worker.backends.server.client import LoadClient, RequestError
from pybench.worker.imports import needs_package
from pybench.worker.ranks import Ranks, scratch_folder

ADDRESS = "127.0.0.1"
_START_LIMIT_S = 1800.0
"""The limit on a server's start. The attempt's own time_limit_s usually ends it before."""
_TERMINATE_S = 30.0
_ENDING_S = 1.0
_POLL_S = 0.1
_ANSWER_S = 5.0
_TAIL_BYTES, _TAIL_LINES = 65536, 70  # of which the host reads the end for an error's cause
_STUB = Path(__file__).with_name("stub.py")


@dataclass
class Server:
    """A running server. ``num_steps`` counts steps with a salt, over all points that share it."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path
    num_steps: int = 0


@contextmanager
def served(settings: Generate, folder: Path, weights: Path | None = None) -> Iterator[Server]:
    """A server for the model in ``folder``, with a checkpoint in ``weights``, as long as the context is open.

    Raises :class:`EngineError` where it ends or does not answer.
    """
    traits = server_of(settings)
    config = server_config(settings)
    (folder / "server.json").write_text(config or "", encoding="utf-8")
    with socket.create_server((ADDRESS, 0)) as held:  # a port that nobody has, given up before the server takes it
        port = int(held.getsockname()[1])
    place = {
        "python": sys.executable,
        "stub": str(_STUB),
        # A relative path is the same in every attempt: vLLM's key of compiled code has it.
        "model_folder": str(folder if settings.server_command else os.path.relpath(folder)),
        "checkpoint_folder": str(weights),
        "port": str(port),
        "config": str(folder / "server.json"),
    }
    command = server_command(settings, place)
    print("server:", json.dumps(command), flush=True)  # noqa: T201 - standard output is the attempt's log
    environment = {**os.environ, **LOOPBACK, **traits.environment}
    log = folder / "server.log"
    with log.open("wb") as stream:
        try:
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
        except OSError as error:
            raise EngineError(f"server: {command[0]}: {error.strerror}") from error
    try:
        _wait_until_healthy(process, port, traits.health_path)
        yield Server(f"http://{ADDRESS}:{port}", process, log)
    except BaseException:
        print(log_tail(log), file=sys.stderr, flush=True)  # noqa: T201 - standard error is the attempt's log
        raise
    finally:
        # Processes that the server leaves behind end with this one.
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(_TERMINATE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_healthy(process: subprocess.Popen[bytes], port: int, path: str) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    while True:
        with suppress(OSError, HTTPException), closing(HTTPConnection(ADDRESS, port, timeout=_ANSWER_S)) as connection:
            connection.request("GET", path)
            if connection.getresponse().status == 200:  # noqa: PLR2004 - HTTP's OK
                return
        code = process.poll()
        if code is not None:
            raise EngineError(f"the server ended with exit code {code} before it answered {path}")
        if time.monotonic() > deadline:
            raise EngineError(f"the server did not answer {path} within {_START_LIMIT_S:g} s")
        time.sleep(_POLL_S)


def log_tail(log: Path) -> str:
    """The last lines of the server's log."""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        return "\n".join(stream.read().decode(errors="replace").splitlines()[-_TAIL_LINES:])


join = joined_replica

_CORES_A_REPLICA = 4
"""With fewer cores for each replica the load generator shares those of its server."""


class ServerLoad(RequestedWork):
    """A server, and the requests of every step of one point; its values come with the steps."""

    def __init__(self, order: WorkOrder, server: Server, replica: int) -> None:
        super().__init__(order, replica)
        settings = self.settings
        self._server = server
        self._traits = server_of(settings)
        self._caches = bool(settings.prefix_caching)
        self._loop = asyncio.new_event_loop()
        self._client = LoadClient(server.url, self.requests, self.wanted, settings.request_limit_s)
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
            with suppress(subprocess.TimeoutExpired):  # a server ends shortly after its connections
                code = self._server.process.wait(_ENDING_S)
                raise EngineError(f"the server ended with exit code {code} at work") from error
            words = log_tail(self._server.log).rpartition("\n")[2]
            raise WrongResultError(f"{error}; the server's last words: {words}" if words else str(error)) from error
        return StepOutcome(
            work=work_of(load.times),
            requests=tuple(load.times),
            values={
                **gap_values(load.gaps_s),
                "num_failed_requests": float(load.faults.total()),
                "num_cancelled_requests": float(load.faults["cancelled"]),
                "late_arrival_fraction": load.num_late / len(self.requests),
                "client_cpu_fraction": load.client_cpu_s / ((time.monotonic_ns() - start_ns) / 1e9),
            },
            late_values=self._server_values,
        )

    def close(self) -> None:
        """Close every connection."""
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
    # The last cores are those of load generators, one each.
    cores = sorted(os.sched_getaffinity(0))
    client_cores = server_cores = cores
    if len(cores) >= _CORES_A_REPLICA * ranks.world_size:
        client_cores, server_cores = [cores[-1 - ranks.rank]], cores[: -ranks.world_size]
    by_modelopt = settings.quantization if settings.server == "trtllm" else None
    with config_folder(architecture, settings.dtype, by_modelopt) as folder, ExitStack() as held:
        write_tokenizer(folder, architecture["vocab_size"])
        loads_weights = any("{checkpoint_folder}" in part for part in server_of(settings).command)
        weights = held.enter_context(checkpoint(folder, settings, ranks)) if loads_weights else None
        os.sched_setaffinity(0, server_cores)  # which the server inherits
        server = held.enter_context(served(settings, folder, weights))
        os.sched_setaffinity(0, client_cores)
        yield lambda point: closing(ServerLoad(point, server, ranks.rank))


SHARD_BYTES = 4 * 2**30
"""Weights of one file at most, unless one alone is larger: so much of them is in host memory at a time."""


def write_tokenizer(folder: Path, vocab_size: int) -> None:
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


@contextmanager
def checkpoint(model_folder: Path, settings: Generate, ranks: Ranks) -> Iterator[Path]:
    """A copy of ``model_folder`` with weights, for all replicas of a host; each must call it.

    It is in the run's folder for what workers share, where later attempts find it; that has one at a time. Without such
    a folder it lasts as long as the context. Raises :class:`UnsupportedError` where the disk has no room.
    """
    shared = os.environ.get(SHARED_VARIABLE)
    with nullcontext(Path(shared)) if shared else scratch_folder("shared") as place:
        words = f"{(model_folder / 'config.json').read_text(encoding='utf-8')} {settings.seed}"
        folder = place / f"checkpoint-{hashlib.sha256(words.encode()).hexdigest()[:16]}"
        if ranks.rank == 0 and not folder.is_dir():
            for other in place.glob("checkpoint-*"):
                shutil.rmtree(other, ignore_errors=True)
            _write(model_folder, folder, settings)
        ranks.barrier()
        yield folder


def _write(model_folder: Path, folder: Path, settings: Generate) -> None:
    """Write shards and their index as ``save_pretrained`` does; ``folder`` is there once it is complete."""
    with needs_package("{checkpoint_folder}", "torch"):
        import torch
        from safetensors.torch import save_file
        from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig

        from pybench.worker.backends.torch.checkpoints import require_room
        from pybench.worker.backends.transformers.entry import state_dict
    config = AutoConfig.from_pretrained(model_folder)
    weights = state_dict(
        MODEL_FOR_CAUSAL_LM_MAPPING[type(config)], config, getattr(torch, settings.dtype), settings.seed
    )
    shards: list[list[str]] = []
    room = total = 0
    for name, weight in weights.items():
        room, total = room - weight.nbytes, total + weight.nbytes
        if room < 0:
            shards.append([])
            room = SHARD_BYTES - weight.nbytes
        shards[-1].append(name)
    require_room(folder.parent, total, "free some, or set TMPDIR to a folder on a larger disk")
    unfinished = folder.with_suffix(".unfinished")
    shutil.copytree(model_folder, unfinished)
    files = [f"model-{number:05}-of-{len(shards):05}.safetensors" for number in range(1, len(shards) + 1)]
    for file, names in zip(files, shards, strict=True):
        save_file({name: weights[name].clone() for name in names}, unfinished / file, metadata={"format": "pt"})
    index = {
        "metadata": {"total_size": total},
        "weight_map": {name: file for file, names in zip(files, shards, strict=True) for name in names},
    }
    (unfinished / "model.safetensors.index.json").write_text(json.dumps(index, indent=1), encoding="utf-8")
    unfinished.rename(folder)
