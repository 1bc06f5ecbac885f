"""The model against kept measurements: generation on 1, 2 and 4 H100s."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pybench.explain.comm_model.generation import generation_phases
from pybench.explain.comm_model.step_time import Baseline
from tests.explain.comm_model.kept_runs import LLAMA, ONE, figures_of, generation_baseline, measured_of


@pytest.mark.parametrize(
    ("run", "node", "backend", "prefill_off", "rounds_off", "off"),
    [
        ("tp_scaling_torch-h100x4-20261126", "node_check-h100x4-20261126", "torch", 0.05, 0.02, 0.025),
        ("tp_scaling_vllm-h100x4-20261126", "node_check-h100x4-20261126", "vllm", 0.05, 0.08, 0.02),
        ("tp_scaling-h100x2-20261125", "node_check-h100x2-20261125", "torch", 0.02, 0.07, 0.05),
        ("tp_scaling_vllm-h100x2-20261125", "node_check-h100x2-20261125", "vllm", 0.04, 0.05, 0.01),
    ],
)
def test_how_near_predictions_of_generation_come(
    run: str, node: str, backend: str, prefill_off: float, rounds_off: float, off: float
) -> None:
    """Predicted over measured speedup, of each phase and of both. The first host is another than its node check's."""
    figures, measured = figures_of(node), measured_of(run, backend)
    vllm = backend == "vllm"
    one, first_token = ONE["tp_scaling_vllm" if vllm else "tp_scaling"], "ttft_p99_s" if vllm else "ttft_s"
    baseline = generation_baseline(generation_phases(figures, LLAMA, one), measured[1], first_token)
    for count in set(measured) - {1}:
        predicted = generation_phases(figures, LLAMA, replace(one, tensor_parallel=count))
        first_s, rounds_s = (Baseline((own,)).calibrated_s([phase]) for own, phase in baseline.paired(predicted))
        found_s, step_s = measured[count][first_token], measured[count]["step_s"]
        assert found_s / first_s == pytest.approx(1.0, abs=prefill_off)
        assert (step_s - found_s) / rounds_s == pytest.approx(1.0, abs=rounds_off)
        assert step_s / (first_s + rounds_s) == pytest.approx(1.0, abs=off)
