"""Replicas, which share nothing: one process each, one group of GPUs each, and a barrier between steps."""

from __future__ import annotations

import difflib
import json
import os
import platform
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from pybench.model.backend import MODEL_CLASSES
from pybench.model.wire import WorkOrder
from pybench.model.workloads.generate import Generate, decided_text
from pybench.worker.backend import UnsupportedError
from pybench.worker.gpus import Gpu, show_by_number, visible_gpus
from pybench.worker.header import Device
from pybench.worker.process import end_group_with_me
from pybench.worker.ranks import RankNumbers, Ranks, SingleRank, rank_numbers


@contextmanager
def config_folder(architecture: dict[str, Any], dtype: str) -> Iterator[Path]:
    """A folder with ``config.json``, there as long as the context is open.

    It lies in the working directory, the attempt's own: a worker that is killed leaves it there.

    Raises :class:`UnsupportedError` for a family whose class is not known.
    """
    family = architecture.get("model_type")
    if family not in MODEL_CLASSES:
        raise UnsupportedError(f"model_type {family!r}: engines here know {', '.join(MODEL_CLASSES)}")
    # Both names of the type: libraries before and after its renaming read it.
    values = {**architecture, "architectures": [MODEL_CLASSES[family]], "dtype": dtype, "torch_dtype": dtype}
    with tempfile.TemporaryDirectory(prefix="model-", dir=Path.cwd()) as name:
        folder = Path(name)
        (folder / "config.json").write_text(json.dumps(values, indent=1), encoding="utf-8")
        yield folder


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
    replica = replica_of(order, numbers)
    if order.device == "cuda":
        gpus = _own_gpus(order, numbers)
        show_by_number(gpus)
        uuids = tuple(gpu.uuid for gpu in gpus)
        device = Device("cuda", gpus[0].name, uuids[0], uuids=uuids, replica=replica)
    else:
        device = Device("cpu", platform.machine(), replica=replica)
    ranks = _met(numbers)
    forget_torchrun()
    yield ranks, device


def _own_gpus(order: WorkOrder, numbers: RankNumbers) -> tuple[Gpu, ...]:
    size, rest = divmod(order.settings.num_gpus, numbers.world_size)
    visible = visible_gpus()
    first = numbers.local_rank * size
    if rest or len(visible) < max(order.settings.num_gpus_per_node, first + size):
        raise UnsupportedError(
            f"{order.point_id}: needs {order.settings.num_gpus} GPUs in {numbers.world_size} processes, "
            f"found {len(visible)}"
        )
    return visible[first : first + size]


def replica_of(order: WorkOrder, numbers: RankNumbers | Ranks) -> int:
    """The replica that a process is part of: one that spans hosts has a process on each."""
    spanned = order.settings.nodes_of_replica if isinstance(order.settings, Generate) else 1
    return numbers.rank // spanned


def _met(numbers: RankNumbers) -> Ranks:
    if numbers.world_size == 1:
        return SingleRank()
    # Only several replicas need it, and they were started by torchrun.
    import torch
    from torch import distributed

    from pybench.worker.backends.common_torch.process_group import TorchRanks

    distributed.init_process_group("gloo", timeout=_TIMEOUT)
    return TorchRanks(numbers.rank, numbers.world_size, torch.device("cpu"))


def forget_torchrun() -> None:
    """An engine that finds these variables takes our process group for its own."""
    for name in [name for name in os.environ if name.startswith(_OF_TORCHRUN)]:
        del os.environ[name]
