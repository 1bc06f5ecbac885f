"""Engines: one process drives a whole replica, on one or more GPUs, and sends it the requests of each step."""

from __future__ import annotations

import asyncio
import difflib
import itertools
import json
import os
import platform
import random
import shutil
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from pybench.model.backend import MODEL_CLASSES, replica_of
from pybench.model.wire import WorkOrder
from pybench.model.workloads.generate import Generate, decided_text, drawn_lengths
from pybench.worker.backend import UnsupportedError, Workload, generation_of
from pybench.worker.exchange import Device
from pybench.worker.gpus import show_by_number, visible_gpus
from pybench.worker.process import end_group_with_me
from pybench.worker.ranks import Ranks, rank_numbers
from pybench.worker.seeds import sample_seed

_GROUPS = {"group_size": 128, "has_zero_point": False, "pre_quant_scale": True}
_MODELOPT: dict[str, dict[str, Any]] = {"fp8": {"quant_algo": "FP8"}, "awq": {"quant_algo": "W4A16_AWQ", **_GROUPS}}
"""By our ``quantization``, as ModelOpt writes it for a checkpoint."""


@contextmanager
def config_folder(architecture: dict[str, Any], dtype: str, by_modelopt: str | None = None) -> Iterator[Path]:
    """A folder with ``config.json``, there as long as the context is open.

    ``by_modelopt``: a file beside it has TensorRT-LLM's PyTorch backend use that ``quantization`` for all but the head
    (tensorrt_llm/_torch/model_config.py).
    It is in the working directory, the attempt's own: a worker that is killed leaves it there. Its name is the same in
    every attempt: engines that read it by a relative path find the code that an earlier attempt compiled.

    Raises :class:`UnsupportedError` for a family whose class is not known.
    """
    family = architecture.get("model_type")
    if family not in MODEL_CLASSES:
        raise UnsupportedError(f"model_type {family!r}: engines here know {', '.join(MODEL_CLASSES)}")
    # Both names of the type: libraries before and after its renaming read it.
    values = {**architecture, "architectures": [MODEL_CLASSES[family]], "dtype": dtype, "torch_dtype": dtype}
    for number in itertools.count():
        folder = Path.cwd() / f"model-{number}"
        with suppress(FileExistsError):  # another rank's of this host
            folder.mkdir()
            break
    try:
        (folder / "config.json").write_text(json.dumps(values, indent=1), encoding="utf-8")
        if by_modelopt:
            layers = {**_MODELOPT[by_modelopt], "kv_cache_quant_algo": None, "exclude_modules": ["lm_head"]}
            words = json.dumps({"producer": {"name": "modelopt"}, "quantization": layers})
            (folder / "hf_quant_config.json").write_text(words, encoding="utf-8")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def merged(
    ours: Mapping[str, Any],
    given: Mapping[str, Any],
    valid: Collection[str],
    engine: str,
    decided: Mapping[str, str | None],
) -> dict[str, Any]:
    """``ours`` with ``given`` on top. ``engine`` names the engine and its version in complaints.

    ``decided`` are arguments that settings of pybench's decide, also where ``ours`` leaves them out, each with the
    setting to use instead; ``None``: there is none.

    Raises :class:`UnsupportedError` for arguments that the engine lacks, ours included, and for those of the suite that
    pybench decides.
    """
    for name in given:
        if name in ours or name in decided:
            raise UnsupportedError(f"engine_args.{decided_text(name, decided.get(name))}")
    for name in (*given, *ours):
        if name not in valid:
            close = difflib.get_close_matches(name, list(valid), n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise UnsupportedError(f"engine_args.{name}: {engine} has no such argument{hint}")
    return {**ours, **given}


# A replica that waits this long for another has lost it; the host's own limit usually comes first.
_TIMEOUT = timedelta(minutes=30)
_OF_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_")


@contextmanager
def joined_replica(order: WorkOrder) -> Iterator[tuple[Ranks, Device]]:
    """Take this replica's GPUs and meet the other replicas. Must come before anything that starts CUDA.

    The engine's processes end with this process, however it ends. Raises :class:`UnsupportedError` when processes or
    GPUs don't fit the order.
    """
    end_group_with_me()
    numbers = rank_numbers()
    replica = replica_of(order.settings, numbers.rank)
    if order.device == "cuda":
        size, rest = divmod(order.settings.num_gpus, numbers.world_size)
        visible = visible_gpus()
        first = numbers.local_rank * size
        if rest or len(visible) < max(order.settings.num_gpus_per_node, first + size):
            raise UnsupportedError(
                f"{order.point_id}: needs {order.settings.num_gpus} GPUs in {numbers.world_size} processes, "
                f"found {len(visible)}"
            )
        gpus = visible[first : first + size]
        show_by_number(gpus)
        uuids = tuple(gpu.uuid for gpu in gpus)
        device = Device("cuda", gpus[0].name, uuids[0], uuids=uuids, replica=replica)
    else:
        device = Device("cpu", platform.machine(), replica=replica)
    ranks: Ranks = Ranks()
    if numbers.world_size > 1:
        # Only several replicas need torch, and they were started by torchrun.
        import torch
        from torch import distributed

        from pybench.worker.backends.common_torch.process_group import TorchRanks

        distributed.init_process_group("gloo", timeout=_TIMEOUT)
        ranks = TorchRanks(numbers.rank, numbers.world_size, torch.device("cpu"))
    forget_torchrun()
    yield ranks, device


def forget_torchrun() -> None:
    """An engine that finds these variables takes our process group for its own."""
    for name in [name for name in os.environ if name.startswith(_OF_TORCHRUN)]:
        del os.environ[name]


@dataclass(frozen=True)
class Request:
    """One request: its prompt's token ids, tokens to decode, and when after the step's start it comes, in s."""

    index: int
    prompt: list[int]
    output_tokens: int
    arrival_s: float


def draw_requests(settings: Generate, vocab_size: int, replica: int) -> tuple[Request, ...]:
    """The share of replica ``replica`` in the step's requests, every ``data_parallel``-th of them.

    Tokens are evenly distributed, and belong to a sample, not to a replica. The first ``shared_prefix_tokens`` are the
    same in every prompt.
    """
    tokens = range(vocab_size)
    prefix = random.Random(f"{settings.seed}/shared prefix")  # noqa: S311 - no secret
    shared = prefix.choices(tokens, k=settings.shared_prefix_tokens or 0)
    drawn = ((each, random.Random(sample_seed(settings.seed, each.index))) for each in drawn_lengths(settings, replica))  # noqa: S311 - no secret
    return tuple(
        Request(
            each.index,
            shared + numbers.choices(tokens, k=each.prompt_tokens)[len(shared) :],
            each.output_tokens,
            each.arrival_s,
        )
        for each, numbers in drawn
    )


def own_concurrency(settings: Generate) -> int | None:
    """Requests that one replica keeps in flight, ``None`` where their number is not held."""
    return None if settings.concurrency is None else settings.concurrency // settings.data_parallel


def wanted_at_a_time(settings: Generate, num_requests: int) -> int | None:
    """Number of a replica's requests that run at a time; ``None`` where they come at random."""
    if settings.request_rate_per_s is not None:
        return None
    return min(num_requests, own_concurrency(settings) or num_requests)


class RequestedWork(Workload):
    """The requests of replica ``replica`` in each step of one point, and how many of them run at a time."""

    def __init__(self, order: WorkOrder, replica: int) -> None:
        self.settings, architecture = generation_of(order)
        self.requests = draw_requests(self.settings, architecture["vocab_size"], replica)
        self.concurrency = own_concurrency(self.settings)
        self.wanted = wanted_at_a_time(self.settings, len(self.requests))


Outcome = TypeVar("Outcome")
Submit = Callable[[Request, int], Awaitable[Outcome]]
"""Sends a request that arrived at a CLOCK_MONOTONIC time in ns, and waits for its end."""


async def drive(requests: Sequence[Request], concurrency: int | None, submit: Submit[Outcome]) -> list[Outcome]:
    """Send every request and wait for all.

    Open loop without ``concurrency``: each is sent at its own moment whatever became of the others, and arrives then,
    also where sending was late. Closed loop with it: so many are in flight, and the next arrives when one ends.
    """
    start_ns = time.monotonic_ns()
    waiting = iter(requests)

    async def at_its_moment(request: Request) -> Outcome:
        arrival_ns = start_ns + round(request.arrival_s * 1e9)
        delay_s = (arrival_ns - time.monotonic_ns()) / 1e9
        if delay_s > 0:
            await asyncio.sleep(delay_s)
        return await submit(request, arrival_ns)

    async def one_after_another() -> list[Outcome]:
        return [await submit(request, time.monotonic_ns()) for request in waiting]

    if concurrency is None:
        return list(await asyncio.gather(*map(at_its_moment, requests)))
    lanes = (one_after_another() for _ in range(min(concurrency, len(requests))))
    return [times for lane in await asyncio.gather(*lanes) for times in lane]
