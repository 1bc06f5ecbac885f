"""A flag is shown where it affects the point's figure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pybench.report.run.flags import relevant
from tests.builders import POINT_RESULT, estimate


@pytest.mark.parametrize(
    ("metric", "unit", "shown"),
    [
        ("energy_j_per_output_token", "J/token", ("alias_risk", "throttled", "of_another_version")),
        ("energy_j", "J", ("throttled", "of_another_version")),
        ("matmul_flops_per_s", "FLOP/s", ("throttled", "of_another_version")),
    ],
)
def test_a_flag_of_joules_stands_where_joules_of_a_token_do(metric: str, unit: str, shown: tuple[str, ...]) -> None:
    """A matmul has joules, too, but is measured for its rate; what this version does not know is never hidden."""
    flags = ("alias_risk", "throttled", "of_another_version")
    assert relevant(replace(POINT_RESULT, flags=flags, metrics={metric: estimate(1.0, unit)})) == shown
