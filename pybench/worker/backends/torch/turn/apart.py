"""An engine in a process of its own, which this process drives and ends."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import torch

# torch's own, with which tensors are sent as handles of their memory.
from torch import multiprocessing

from pybench.model.workloads.turn import Turn
from pybench.worker.backend import EngineError
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.turn.delivery import Bucket, Named, packed, parts
from pybench.worker.backends.turn.peak_memory import NOTHING, Held
from pybench.worker.imports import spared_by_collector
from pybench.worker.process import die_with_parent

_END = "end"


class EngineApart:
    """A :class:`TorchEngine` in a process that shares this one's device; weights come as a handle or in a file."""

    num_shards = 1

    def __init__(self, settings: Turn, architecture: dict[str, Any], device: torch.device) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        arguments = (theirs, settings, architecture, str(device))
        self._process = context.Process(target=serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        self._call("wake_cache")

    def generate(self, prompts: torch.Tensor, halfway: Callable[[], None] | None) -> torch.Tensor:
        """``halfway`` is the engine's own :meth:`apply`, the only call that another process can make meanwhile."""
        found: torch.Tensor = self._call("generate", prompts, halfway is not None)
        return found

    def first_token(self, prompt: torch.Tensor) -> None:
        """As the engine does."""
        self._call("first_token", prompt)

    def log_probabilities(self, tokens: torch.Tensor) -> torch.Tensor:
        """As the engine does."""
        found: torch.Tensor = self._call("log_probabilities", tokens)
        return found

    def sleep(self, level: int) -> None:
        """As the engine does."""
        self._call("sleep", level)

    def wake_weights(self) -> None:
        """As the engine does."""
        self._call("wake_weights")

    def wake_cache(self) -> None:
        """As the engine does."""
        self._call("wake_cache")

    def poison(self) -> None:
        """As the engine does."""
        self._call("poison")

    def receive(self, tensors: Iterable[Named]) -> None:
        """Copy the tensors into buckets, whose handles the engine opens."""
        for part in parts(tensors):
            self._call("receive", packed(part))

    def read(self, file: Path) -> None:
        """As the engine does."""
        self._call("read", file)

    def prefetch(self, file: Path) -> None:
        """As the engine does."""
        self._call("prefetch", file)

    def apply(self) -> None:
        """It has taken them by itself, halfway."""

    def part(self, _shard: int, _name: str, whole: torch.Tensor) -> torch.Tensor:
        """One process holds all."""
        return whole

    def digests(self) -> list[dict[str, int]]:
        """As the engine does."""
        found: list[dict[str, int]] = self._call("digests")
        return found

    def device_pids(self) -> tuple[int, ...]:
        """The engine's process."""
        return (cast("int", self._process.pid),)

    def host_bytes(self) -> int:
        """Of the engine's process."""
        return int(self._call("read_pinned_bytes"))

    def asleep(self) -> Held:
        """It is no part of this process."""
        return NOTHING

    def close(self) -> None:
        """End the process; one that hangs is killed."""
        try:
            self._connection.send((_END, ()))
            self._process.join(timeout=10)
        except OSError:
            pass
        self._process.kill()
        self._process.join()

    def _call(self, method: str, *arguments: object) -> Any:
        """The answer of the engine's process. Raises :class:`EngineError` when it failed or is gone."""
        try:
            self._connection.send((method, arguments))
            failed, answer = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join(timeout=10)
            ended = f"ended with exit code {self._process.exitcode}"
            raise EngineError(f"the engine's process {ended} while it was to {method.replace('_', ' ')}") from error
        if failed:
            raise EngineError(f"the engine failed to {method.replace('_', ' ')}: {answer}")
        return answer


def serve(connection: Connection, settings: Turn, architecture: dict[str, Any], device: str) -> None:
    """Be the engine until the other process ends it."""
    die_with_parent()
    with spared_by_collector():
        from pybench.worker.backends.torch.turn.engine import TorchEngine

    own = torch.device(device)
    if own.type == "cpu":
        torch.set_num_threads(1)
    else:
        torch.cuda.set_device(own)
    engine = TorchEngine(settings, architecture, TorchRanks(0, 1, own))
    while True:
        method, arguments = connection.recv()
        if method == _END:
            return
        try:
            connection.send((False, _answer(engine, method, arguments)))
        except Exception as error:  # noqa: BLE001 - whatever broke is the answer
            traceback.print_exc()
            connection.send((True, f"{type(error).__name__}: {error}"))


def _answer(engine: Any, method: str, arguments: tuple[Any, ...]) -> object:
    if method == "generate":
        prompts, applies = arguments
        return engine.generate(prompts, engine.apply if applies else None)
    if method == "receive" and isinstance(arguments[0], Bucket):
        engine.receive(list(arguments[0].tensors()))
        return None
    return getattr(engine, method)(*arguments)
