"""Weights that LoRA trains."""

from __future__ import annotations

import json

import pytest

from pybench.core.flops import adapter_parameters
from pybench.files.shipped import load_models, shipped_suites
from pybench.model.decoder_shape import DecoderShape
from pybench.model.workloads.train import Train


def _settings(**options: object) -> Train:
    return Train(backend="torch", model="llama-3.1-8b", strategy="ddp", sequence_tokens=64, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("targets", "of_layer"),
    [(None, 13_312), ("query_value", 13_312), ("attention", 26_624), ("all_linear", 81_920)],
)
def test_inputs_and_outputs_of_each_target(targets: str | None, of_layer: int) -> None:
    """Llama-3.1-8B: 4,096 wide, keys 1,024, MLP 14,336; ``query_value`` where nothing is said."""
    shape = DecoderShape.from_config(load_models()["llama-3.1-8b"])
    settings = _settings(lora_rank=8, lora_targets=targets)
    assert adapter_parameters(shape, settings) == 32 * 8 * of_layer


def test_a_worker_counts_as_many() -> None:
    """An H100's run of adapters of rank 8 at attention's four projections."""
    kept = json.loads((shipped_suites() / "measured" / "evaluation_trained-h100x1-20261124.json").read_text())
    shape = DecoderShape.from_config(load_models()["llama-3.1-8b"])
    settings = _settings(lora_rank=8, lora_targets="attention")
    for point in kept["points"]:
        assert point["metrics"]["trained_parameters"]["value"] == adapter_parameters(shape, settings)


def test_without_adapters_there_are_none() -> None:
    """All weights are trained."""
    shape = DecoderShape.from_config(load_models()["llama-3.1-8b"])
    assert adapter_parameters(shape, _settings()) is None
