"""Which parallel degrees of a point reach from host to host."""

from __future__ import annotations

from pybench.model.workloads.settings import RANK_ORDER, ModelSettings


def degrees_over_hosts(settings: ModelSettings) -> tuple[str, ...]:
    """Degrees with a group whose ranks are on several hosts, in the order of ranks; none on one host.

    Ranks of a group lie a stride apart, in a block of the stride times the degree, and hosts have blocks of ranks: all
    groups are inside hosts exactly where a host's block is a multiple of the groups'.
    """
    each = settings.num_gpus // settings.num_nodes
    stride, found = 1, []
    for name in reversed(RANK_ORDER):
        degree = int(getattr(settings, name))
        if degree > 1 and each % (stride * degree):
            found.append(name)
        stride *= degree
    return tuple(reversed(found))
