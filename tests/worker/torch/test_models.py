"""The shipped model shapes."""

from __future__ import annotations

import pytest

from pybench.store.model_shapes import load_models


@pytest.mark.parametrize("name", load_models())
def test_config_class_accepts(name: str) -> None:
    """Transformers knows every model type and keeps its sizes."""
    transformers = pytest.importorskip("transformers")
    shape = dict(load_models()[name])
    assert "source" not in shape
    config = transformers.AutoConfig.for_model(shape.pop("model_type"), **shape)
    assert (config.hidden_size, config.num_key_value_heads) == (shape["hidden_size"], shape["num_key_value_heads"])


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("llama-2-7b", 6.74e9),
        ("llama-3.1-8b", 8.03e9),
        ("llama-3.1-70b", 70.6e9),
        ("llama-3.2-1b", 1.24e9),
        ("qwen2.5-7b", 7.62e9),
        ("qwen2.5-14b", 14.77e9),
        ("qwen3-32b", 32.8e9),
    ],
)
def test_parameter_count(name: str, published: float) -> None:
    """The shape has the published number of parameters, within 2 %."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    shape = dict(load_models()[name])
    with torch.device("meta"):
        config = transformers.AutoConfig.for_model(shape.pop("model_type"), **shape)
        model = transformers.AutoModelForCausalLM.from_config(config)
    assert sum(weight.numel() for weight in model.parameters()) == pytest.approx(published, rel=0.02)
