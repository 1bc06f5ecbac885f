"""How far joules are from the truth on H200 physics, and how honest the bound is; a thousand windows each."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tests.physics.windows import Outcome, measure

NUM_WINDOWS = 1000
MOST_PERCENT = {
    ("constant", 1.0): 0.1,
    ("decode_30hz", 1.0): 0.4,
    ("square_200_200", 1.0): 0.5,
    ("square_50_50", 1.0): 1.2,
    ("bursty", 1.0): 1.0,
    ("constant", 0.3): 0.3,
    ("square_200_200", 0.3): 1.6,
}


@pytest.mark.parametrize(("load", "window_s"), MOST_PERCENT)
@pytest.mark.timeout(600)
def test_energy_against_truth(benchmark: BenchmarkFixture, load: str, window_s: float) -> None:
    outcome: Outcome = benchmark.pedantic(measure, (load, window_s, NUM_WINDOWS))
    benchmark.extra_info |= {"p95_percent": outcome.p95_percent, "inside_percent": outcome.inside_percent}
    assert outcome.p95_percent <= MOST_PERCENT[load, window_s]
    assert outcome.inside_percent >= 99.0
