"""What kept trainings take beyond the model, without a baseline: by one node check of each kind of GPU."""

from __future__ import annotations

import pytest

from pybench.explain.comm_model.step_time import StepTime
from tests.explain.kept_points import kept_points, predicted_and_measured, settings_of


def _kept(stem: str, benchmark: str) -> tuple[StepTime, float]:
    """Of the point on the fewest GPUs the predicted step and its measured seconds."""
    points = [point for point in kept_points(stem) if point["benchmark"] == benchmark]
    kept = min(points, key=lambda point: int(point["num_gpus"]))
    node = f"node_check-{'h200' if 'h200' in stem else 'h100'}x4-20261126"
    return predicted_and_measured(node, kept, settings_of(kept))


@pytest.mark.parametrize(
    ("stem", "name", "least", "most"),
    [
        # Without what lies between the products, adapters, four bits and sums over microbatches: 0.63 to 0.90.
        ("ddp_strong-h100x4-20261126", "strong", 0.88, 0.96),
        ("ddp_strong-h200x2-20261126", "strong", 0.92, 0.98),
        ("fsdp_scaling-h100x4-20261126", "weak", 0.82, 0.9),
        ("train_strategies-h200x1-20261125", "copies", 0.92, 0.98),
        ("fsdp_scaling_full_compiled-h200x1-20261122", "weak", 0.87, 0.94),
        ("fsdp_scaling_none_compiled-h200x1-20261122", "weak", 0.87, 0.94),
        ("fsdp_scaling_selective_compiled-h200x1-20261122", "weak", 0.87, 0.95),
        ("tensor_training_scaling-h100x4-20261126", "tensor", 0.91, 0.98),
        ("train_strategies_one-h100x2-20261125", "split_sequence", 0.88, 0.96),
        ("pipeline_scaling-h200x2-20261126", "layer_split", 0.93, 0.99),
        ("pipeline_scaling-h200x2-20261126", "stages", 0.87, 0.94),
        ("lora_scaling-h100x4-20261126", "copies", 0.9, 0.98),
        ("qlora-h100x4-20261126", "lora", 0.9, 0.97),
        ("qlora-h200x2-20261122", "lora", 0.87, 0.94),
        ("published_lora-h100x1-20261123", "lora", 0.93, 0.99),
        ("lora_larger-h200x1-20261123", "qwen_lora", 0.86, 0.93),
        ("lora_larger-h200x1-20261123", "gemma_lora", 0.82, 0.89),
        ("lora_sharded-h100x4-20261126", "sharded", 0.86, 0.93),
        ("lora_sharded-h200x2-20261126", "sharded", 0.97, 1.03),
        ("qlora-h100x4-20261126", "qlora", 0.89, 0.96),
        ("qlora-h200x2-20261122", "qlora", 0.88, 0.95),
        ("sft_presets-h100x4-20261127", "preset", 0.87, 0.94),
        ("sft_presets-h200x4-20261127", "preset", 0.92, 0.98),
    ],
)
def test_how_much_of_a_step_is_explained(stem: str, name: str, least: float, most: float) -> None:
    """Predicted over measured seconds; no figure of the step itself takes part."""
    predicted, measured_s = _kept(stem, name)
    assert least < predicted.total_s / measured_s < most


@pytest.mark.parametrize(
    ("stem", "names", "least", "most"),
    [
        ("qlora-h100x4-20261126", ("lora", "qlora"), 0.75, 0.85),
        ("qlora-h200x2-20261122", ("lora", "qlora"), 0.9, 1.0),
        ("lora_larger-h200x1-20261123", ("gemma_lora", "gemma_qlora"), 0.7, 0.8),
        # Products of one sample take longer than an eighth of those of eight, too.
        ("pipeline_scaling-h200x2-20261126", ("layer_split", "stages"), 0.4, 0.6),
    ],
)
def test_how_much_longer_a_kept_step_is(stem: str, names: tuple[str, str], least: float, most: float) -> None:
    """Four bits over 16, and the sums over 16 microbatches over one pass: predicted over measured."""
    (one, one_s), (other, other_s) = (_kept(stem, name) for name in names)
    assert least < (other.total_s - one.total_s) / (other_s - one_s) < most
