"""How DDP reduces a bucket of gradients: as it is, in bfloat16, or as factors of low rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from pybench.model.workloads.train import Train

# DDP orders its buckets anew in the second step, and factors kept from step to step belong to a bucket.
_FIRST_COMPRESSED_STEP = 2


def reduce_by_hook(replica: DistributedDataParallel, settings: Train) -> Callable[[], int]:
    """Register the settings' hook, if any; returns what gives the bytes that this rank reduces in a step."""
    if settings.comm_hook == "powersgd":
        return _factors(replica, settings.powersgd_rank or 1)
    if settings.comm_hook == "bf16":
        replica.register_comm_hook(None, _in_bfloat16)
        return lambda: _num_trained(replica) * torch.bfloat16.itemsize
    return lambda: sum(one.numel() * one.element_size() for one in _trained(replica))


def _in_bfloat16(state: Any, bucket: Any) -> torch.futures.Future[torch.Tensor]:
    return bf16_compress_hook(state, bucket)


# DDP reads them. It accepts torch's own function over NCCL only, though gloo reduces bfloat16 as well.
_in_bfloat16.__annotations__ = bf16_compress_hook.__annotations__


def _factors(replica: DistributedDataParallel, rank: int) -> Callable[[], int]:
    """PowerSGD (arXiv:1905.13727): a matrix as the product of two thin ones; what they miss is added the next time."""
    state: Any = PowerSGDState(
        process_group=replica.process_group,
        matrix_approximation_rank=rank,
        start_powerSGD_iter=_FIRST_COMPRESSED_STEP,
    )
    on_gloo = torch.distributed.get_backend(replica.process_group) == "gloo"
    replica.register_comm_hook(state, _one_after_another() if on_gloo else powerSGD_hook)
    width = max(parameter.element_size() for parameter in _trained(replica))

    def reduced_bytes() -> int:
        steps = state.iter - _FIRST_COMPRESSED_STEP
        _, _, sent = state.compression_stats()
        return int(sent) * width // steps if steps > 0 else _num_trained(replica) * width

    return reduced_bytes


def _one_after_another() -> Callable[[Any, Any], torch.futures.Future[torch.Tensor]]:
    """PowerSGD's hook, a bucket at a time: it reduces the second factor once the first is there.

    With several buckets on their way gloo starts these reductions in another order on each rank; NCCL queues them.
    """
    before: list[torch.futures.Future[torch.Tensor]] = []

    def hook(state: Any, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        if before:
            before.pop().wait()
        before.append(powerSGD_hook(state, bucket))
        return before[0]

    hook.__annotations__ = powerSGD_hook.__annotations__
    return hook


def _trained(replica: DistributedDataParallel) -> list[torch.nn.Parameter]:
    return [parameter for parameter in replica.parameters() if parameter.requires_grad]


def _num_trained(replica: DistributedDataParallel) -> int:
    return sum(parameter.numel() for parameter in _trained(replica))
