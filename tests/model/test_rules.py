"""Rules of workloads on settings, whatever file they come from."""

from __future__ import annotations

import pytest

from pybench.model.workloads.registry import TRAITS_OF
from pybench.model.workloads.traits import Breach, GivenSettings

STRONG = {"global_batch_size": 8}


def test_values_of_a_setting() -> None:
    """Swept, fixed, or none at all."""
    given = GivenSettings({"seed": 3}, {"tensor_parallel": (1, 2)})
    assert given.values("tensor_parallel") == (1, 2)
    assert given.values("seed") == (3,)
    assert given.values("batch_size") == ()


@pytest.mark.parametrize(
    ("workload", "given", "key"),
    [
        ("train", GivenSettings(STRONG, {}), "none"),
        ("train", GivenSettings({}, {}), None),
        ("train", GivenSettings({**STRONG, "zero_stage": 3}, {}), "zero_stage"),
        ("train", GivenSettings({**STRONG, "optimizer": "sgd"}, {"fused_adamw": (True, False)}), "optimizer"),
        ("generate", GivenSettings({"concurrency": 1}, {}), "none"),
        ("generate", GivenSettings({"concurrency": 1}, {"request_rate_per_s": (1.0,)}), None),
        ("matmul", GivenSettings({}, {"gpus": (1, 2)}), "none"),
    ],
)
def test_a_breach_names_the_setting_to_change(workload: str, given: GivenSettings, key: str | None) -> None:
    """Or none where several are at fault together."""
    assert [breach.key for breach in TRAITS_OF[workload].rules(given)] == ([] if key == "none" else [key])


def test_scaling_of_training_needs_samples_that_scale() -> None:
    """A batch for all GPUs, or one for each along the axis that adds samples; other workloads have no such rule."""
    rules = TRAITS_OF["train"].scaling_rules
    weak = GivenSettings({"batch_size_per_gpu": 2}, {"data_parallel": (1, 2)})
    assert list(rules(weak, "weak", "data_parallel")) == []
    assert list(rules(weak, "strong", "data_parallel")) == [
        Breach("strong scaling of training needs global_batch_size", "scaling")
    ]
    assert [breach.key for breach in rules(weak, "weak", "tensor_parallel")] == ["along"]
    assert list(TRAITS_OF["matmul"].scaling_rules(GivenSettings({}, {}), "weak", "gpus")) == []
