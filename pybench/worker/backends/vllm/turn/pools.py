"""Memory of vLLM's that its sleep gives back to the driver: pools of torch's allocator, one for each tag."""

from __future__ import annotations

from functools import cache

from vllm.device_allocator.cumem import CuMemAllocator

from pybench.worker.backends.turn.peak_memory import NOTHING, Held

WEIGHTS, CACHE = "weights", "kv_cache"


@cache
def pool(tag: str) -> Held | None:
    """What torch counts of a pool in this process, also while it sleeps; ``None`` where vLLM keeps pools otherwise.

    An engine's pools stay as they are from its start on, and looking through one takes time.
    """
    try:
        pools = CuMemAllocator.get_instance().allocator_and_pools
        if tag not in pools:
            return NOTHING
        segments = pools[tag][0].snapshot()
    except (AttributeError, TypeError):
        return None
    return Held(sum(one["allocated_size"] for one in segments), sum(one["total_size"] for one in segments))
