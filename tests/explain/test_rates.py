"""Latency and bandwidth from size curves, and rates of a node from its run."""

from __future__ import annotations

from typing import Any

import pytest

from pybench.explain.node import node_rates
from pybench.explain.step_time import NodeRates, fit
from pybench.model.errors import UsageError
from pybench.model.workloads.node import Matmul, MemoryBandwidth

_MIB = 2**20


def test_fit_recovers_a_line() -> None:
    """10 us and 100 GB/s."""
    line = fit([(size, 10e-6 + size / 100e9) for size in (1024, _MIB, 512 * _MIB)])
    assert line.alpha_s == pytest.approx(10e-6)
    assert line.beta_s_per_byte == pytest.approx(1e-11)
    assert line.time_s(_MIB) == pytest.approx(10e-6 + _MIB / 100e9)


def test_small_sizes_have_the_weight_of_large_ones() -> None:
    """Times are 10 % above and below the line in turn; the latency is still about 10 us."""
    sizes = [2**n for n in range(13, 33, 2)]
    curve = [(size, (10e-6 + size / 300e9) * (1.1 if n % 2 else 0.9)) for n, size in enumerate(sizes)]
    line = fit(curve)
    assert line.alpha_s == pytest.approx(10e-6, rel=0.15)
    assert 1 / line.beta_s_per_byte == pytest.approx(300e9, rel=0.15)


def test_latency_and_bandwidth_are_not_negative() -> None:
    """A convex curve and a falling one."""
    bent = fit([(1.0, 0.1), (2.0, 1.0)])
    assert (bent.alpha_s, bent.beta_s_per_byte > 0) == (0.0, True)
    falling = fit([(1.0, 2.0), (10.0, 1.0)])
    assert falling.beta_s_per_byte == 0.0
    assert 1 <= falling.alpha_s <= 2


@pytest.mark.parametrize("curve", [[], [(1.0, 1.0)], [(1.0, 1.0), (1.0, 2.0)], [(1.0, 1.0), (2.0, 0.0)]])
def test_fit_needs_two_sizes_with_positive_times(curve: list[tuple[float, float]]) -> None:
    """Anything else raises."""
    with pytest.raises(ValueError, match="a fit needs times of two sizes"):
        fit(curve)


def test_rates_of_a_node(runs: Any) -> None:
    """The rates are the slowest GPU's, in the model's own type; a curve needs two sizes."""
    rates = node_rates(runs.measured_node, "bfloat16")
    assert (rates.matmul_flops_per_s, rates.memory_bytes_per_s) == (540e12, 4.2e12)
    assert rates.peer_bytes_per_s == 350e9
    assert {name: flops for name, (flops, _) in rates.gpus.items()} == {"rank 0": 660e12, "rank 1": 540e12}
    assert list(rates.collectives) == [("all_reduce", 2)]
    assert rates.collectives["all_reduce", 2].alpha_s == pytest.approx(15e-6)


@pytest.mark.parametrize(("left_out", "lacks"), [(Matmul, "matmul in bfloat16"), (MemoryBandwidth, "memory_bandwidth")])
def test_a_node_run_without_basic_rates_is_refused(runs: Any, left_out: type, lacks: str) -> None:
    """The error names the command to run."""
    runs.node_points = [point for point in runs.node_points if not isinstance(point.settings, left_out)]
    with pytest.raises(UsageError, match=f"measured no {lacks}; give a run of node_check"):
        node_rates(runs.measured_node, "bfloat16")


def test_messages_beyond_the_measured_sizes_are_named() -> None:
    """By operation and size; a node's copies of its rates share the list."""
    curve = fit([(_MIB, 1e-4), (16 * _MIB, 1e-3)])
    rates = NodeRates(matmul_flops_per_s=1.0, memory_bytes_per_s=1.0, collectives={("all_reduce", 2): curve})
    for size in (_MIB, 2 * _MIB, 16 * _MIB):
        rates.collective_s("all_reduce", size, 2)
    assert rates.extrapolated == set()
    rates.over(1).collective_s("all_gather", 32 * _MIB, 2)
    assert rates.extrapolated == {("all_gather", 32 * _MIB)}
