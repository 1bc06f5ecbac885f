"""The shipped model shapes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pybench.files.shipped import load_models
from pybench.files.suite.own_files import read_model_config
from pybench.model.decoder_shape import DecoderShape
from tests.builders import GEMMA_4B


@pytest.mark.parametrize("name", load_models())
def test_config_class_accepts(name: str) -> None:
    """Transformers knows every model type and keeps its sizes."""
    transformers = pytest.importorskip("transformers")
    shape = dict(load_models()[name])
    assert "source" not in shape
    config = transformers.AutoConfig.for_model(shape.pop("model_type"), **shape)
    assert (config.hidden_size, config.num_key_value_heads) == (shape["hidden_size"], shape["num_key_value_heads"])
    if getattr(config, "layer_types", None):
        ours = DecoderShape.from_config(load_models()[name])
        assert ours.sliding_layers == config.layer_types.count("sliding_attention")


def test_what_a_silent_config_assumes(tmp_path: Path) -> None:
    """It is what the family's class in transformers assumes."""
    transformers = pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(json.dumps(GEMMA_4B))
    shape = DecoderShape.from_config(read_model_config(tmp_path / "config.json"))
    own = {key: value for key, value in GEMMA_4B.items() if key != "model_type"}
    config = transformers.AutoConfig.for_model("gemma3_text", **own)
    assert (shape.vocabulary, shape.heads, shape.key_value_heads, shape.head_width, shape.max_positions) == (
        config.vocab_size,
        config.num_attention_heads,
        config.num_key_value_heads,
        config.head_dim,
        config.max_position_embeddings,
    )
    assert shape.sliding_layers == config.layer_types.count("sliding_attention")
    assert shape.tied_embeddings == config.tie_word_embeddings


PUBLISHED = {
    "llama-2-7b": 6_738_415_616,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.3-70b": 70_553_706_496,
    "qwen2-7b": 7_615_616_512,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "mistral-7b": 7_248_023_552,
    "qwen3-32b": 32_762_123_264,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "phi-3-mini": 3_821_079_552,
    "phi-4": 14_659_507_200,
    # 27,432,406,640 with its vision tower of 416,866,032 and the projection of 6,194,304 from there.
    "gemma-3-27b": 27_009_346_304,
    "gpt-oss-20b": 20_914_757_184,
}
"""Parameters as the checkpoints' safetensors headers count them."""


@pytest.mark.parametrize("name", [name for name in load_models() if not name.endswith(("-tiny", "-cpu"))])
def test_parameter_count(name: str) -> None:
    """The shape has the published number of parameters, to the last one."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    shape = dict(load_models()[name])
    with torch.device("meta"):
        config = transformers.AutoConfig.for_model(shape.pop("model_type"), **shape)
        model = transformers.AutoModelForCausalLM.from_config(config)
    assert sum(weight.numel() for weight in model.parameters()) == PUBLISHED[name]
