"""Latency and bandwidth from size curves."""

from __future__ import annotations

import pytest

from pybench.explain.comm_model.alpha_beta import AlphaBeta, fit

_MIB = 2**20


def test_a_line_is_found_again() -> None:
    """10 us and 100 GB/s."""
    found = fit([(size, 10e-6 + size / 100e9) for size in (1024, _MIB, 512 * _MIB)])
    assert found.alpha_s == pytest.approx(10e-6)
    assert found.beta_s_per_byte == pytest.approx(1e-11)
    assert found.misfit_fraction < 1e-9
    assert found.time_s(_MIB) == pytest.approx(10e-6 + _MIB / 100e9)


def test_small_sizes_count_as_much_as_large_ones() -> None:
    """A tenth more time at each size alternately: the latency is still about 10 us."""
    sizes = [2**n for n in range(13, 33, 2)]
    curve = [(size, (10e-6 + size / 300e9) * (1.1 if n % 2 else 0.9)) for n, size in enumerate(sizes)]
    found = fit(curve)
    assert found.alpha_s == pytest.approx(10e-6, rel=0.15)
    assert 1 / found.beta_s_per_byte == pytest.approx(300e9, rel=0.15)
    assert 0.05 < found.misfit_fraction < 0.2


def test_no_latency_and_no_bandwidth_below_nothing() -> None:
    """A curve that bends the wrong way, and one that falls."""
    bent = fit([(1.0, 0.1), (2.0, 1.0)])
    assert (bent.alpha_s, bent.beta_s_per_byte > 0) == (0.0, True)
    falling = fit([(1.0, 2.0), (10.0, 1.0)])
    assert falling.beta_s_per_byte == 0.0
    assert 1 <= falling.alpha_s <= 2


@pytest.mark.parametrize("curve", [[], [(1.0, 1.0)], [(1.0, 1.0), (1.0, 2.0)], [(1.0, 1.0), (2.0, 0.0)]])
def test_what_shows_no_line(curve: list[tuple[float, float]]) -> None:
    """Two sizes and real times are needed."""
    with pytest.raises(ValueError, match="a fit needs times of two sizes"):
        fit(curve)


def test_more_ranks_by_ring_and_tree() -> None:
    """From 2 to 8: 7 steps instead of 1, or 3 levels; 7/8 of the data instead of 1/2."""
    measured = AlphaBeta(1e-5, 1e-11)
    ring, tree = (measured.at("all_reduce", 2, 8, tree=tree) for tree in (False, True))
    assert [ring.alpha_s, tree.alpha_s] == pytest.approx([7e-5, 3e-5])
    assert ring.beta_s_per_byte == tree.beta_s_per_byte == pytest.approx(1.75e-11)
    assert measured.at("broadcast", 2, 8, tree=True).beta_s_per_byte == 1e-11
