"""What a node's run says for the model of step times."""

from __future__ import annotations

from typing import Any

import pytest

from pybench.explain.node_figures import node_figures
from pybench.model.errors import UsageError
from pybench.model.workloads.matmul import Matmul
from pybench.model.workloads.memory_bandwidth import MemoryBandwidth


def test_figures_of_a_node(runs: Any) -> None:
    """The slowest GPU's, in the model's own type; a curve needs two sizes."""
    figures = node_figures(runs.measured_node, "bfloat16")
    assert (figures.matmul_flops_per_s, figures.memory_bytes_per_s) == (540e12, 4.2e12)
    assert figures.peer_bytes_per_s == 350e9
    assert {name: gpu.matmul_flops_per_s for name, gpu in figures.gpus.items()} == {"rank 0": 660e12, "rank 1": 540e12}
    assert list(figures.collectives) == [("all_reduce", 2)]
    assert figures.collectives["all_reduce", 2].alpha_s == pytest.approx(15e-6)


@pytest.mark.parametrize(("left_out", "lacks"), [(Matmul, "matmul in bfloat16"), (MemoryBandwidth, "memory_bandwidth")])
def test_a_run_without_the_basic_figures(runs: Any, left_out: type, lacks: str) -> None:
    """Says what to run."""
    runs.node_points = [point for point in runs.node_points if not isinstance(point.settings, left_out)]
    with pytest.raises(UsageError, match=f"measured no {lacks}; give a run of node_check"):
        node_figures(runs.measured_node, "bfloat16")
