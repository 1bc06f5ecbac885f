"""Degrees over hosts, by hand and against the hosts of every group."""

from __future__ import annotations

from itertools import product

import pytest

from pybench.compute.host_layout import degrees_over_hosts
from pybench.model.workloads.settings import RANK_ORDER
from pybench.model.workloads.train import Train


def training(nodes: int, pp: int = 1, dp: int = 1, tp: int = 1) -> Train:
    return Train(
        backend="torch",
        model="tiny",
        sequence_tokens=8,
        nodes=nodes,
        pipeline_parallel=pp,
        data_parallel=dp,
        tensor_parallel=tp,
    )


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        (training(1, dp=4, tp=2), ()),
        (training(2, dp=4), ("data_parallel",)),
        (training(2, dp=2, tp=4), ("data_parallel",)),
        (training(4, dp=2, tp=4), ("data_parallel", "tensor_parallel")),
        (training(2, pp=2, dp=2, tp=2), ("pipeline_parallel",)),
        (training(4, pp=2, dp=2, tp=2), ("pipeline_parallel", "data_parallel")),
        (training(2, pp=3, dp=2), ("pipeline_parallel", "data_parallel")),
    ],
    ids=str,
)
def test_by_hand(settings: Train, found: tuple[str, ...]) -> None:
    """The outermost degree lies over hosts first."""
    assert degrees_over_hosts(settings) == found


def test_every_group() -> None:
    """A degree is named exactly where two ranks that differ in it alone are on two hosts."""
    for nodes, pp, dp, tp in product((1, 2, 3, 4, 6), (1, 2, 3), (1, 2, 4), (1, 2, 3)):
        settings = training(nodes, pp, dp, tp)
        if settings.num_gpus % nodes:
            continue
        sizes = [getattr(settings, name) for name in RANK_ORDER]
        host = {
            place: rank * nodes // settings.num_gpus for rank, place in enumerate(product(*(range(n) for n in sizes)))
        }
        crossing = set()
        for a, b in product(host, host):
            differ = [name for name, x, y in zip(RANK_ORDER, a, b, strict=True) if x != y]
            if len(differ) == 1 and host[a] != host[b]:
                crossing.add(differ[0])
        assert set(degrees_over_hosts(settings)) == crossing, settings
