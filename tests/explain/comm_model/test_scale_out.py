"""Laws that are fitted to measured speedups."""

from __future__ import annotations

import pytest

from pybench.explain.comm_model.scale_out import amdahl, predict, usl


def test_amdahls_fraction_is_found_again() -> None:
    """A tenth is serial."""
    measured = {n: n / (1 + 0.1 * (n - 1)) for n in (2, 4, 8)}
    assert amdahl(measured)(64) == pytest.approx(64 / (1 + 0.1 * 63))
    assert usl(measured)(64) == pytest.approx(64 / (1 + 0.1 * 63))


def test_the_universal_law_is_found_again() -> None:
    """Serial 0.05 and 0.001 for each pair: speedup falls in the end."""
    law = usl({n: n / (1 + 0.05 * (n - 1) + 0.001 * n * (n - 1)) for n in (2, 4, 8)})
    assert law(32) == pytest.approx(32 / (1 + 0.05 * 31 + 0.001 * 32 * 31))
    assert law(1024) < law(32)


def test_agreeing_alone_can_cost() -> None:
    """No serial fraction below nothing."""
    law = usl({2: 2 / 1.002, 4: 4 / 1.03})
    assert law(8) < 8
    assert law(2) <= 2


def test_one_count_gives_amdahls_law() -> None:
    """Two unknowns need two counts."""
    assert usl({2: 1.8})(16) == amdahl({2: 1.8})(16)


def test_perfect_speedup_stays_perfect() -> None:
    """And none promises more than the GPUs there are."""
    (found,) = predict({2: 2.1, 4: 4.4}, [16])
    assert (found.low, found.speedup, found.high) == (16.0, 16.0, 16.0)


def test_the_interval_spans_the_laws() -> None:
    """Amdahl's is above the universal law; a law of one's own widens it."""
    measured = {2: 1.9, 4: 3.4}
    (narrow,) = predict(measured, [64])
    assert narrow.low == pytest.approx(usl(measured)(64))
    assert narrow.high == pytest.approx(amdahl(measured)(64))
    assert narrow.low < narrow.speedup < narrow.high
    (wide,) = predict(measured, [64], [lambda count: count * 0.9])
    assert wide.low == narrow.low
    assert wide.high == pytest.approx(57.6)


def test_one_gpu_shows_no_law() -> None:
    """There is nothing to fit."""
    with pytest.raises(ValueError, match="more than one GPU"):
        amdahl({1: 1.0})
