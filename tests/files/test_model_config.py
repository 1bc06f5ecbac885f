"""One's own model: what is taken of a published config.json, and every way to get one wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pybench.core.plan import expand
from pybench.files.shipped import load_models
from pybench.files.suite.file import read_suite
from pybench.files.suite.own_files import config_name, read_model_config
from pybench.model.decoder_shape import DecoderShape
from pybench.model.errors import FileError, UsageError
from pybench.model.machine import Devices
from pybench.model.suite import Point
from tests.builders import GEMMA_4B

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "bos_token_id": 1,
    "eos_token_id": [2, 3],
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 96,
    "max_position_embeddings": 128,
    "model_type": "llama",
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 500000,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.40.0",
    "use_cache": True,
    "vocab_size": 300,
}
# As google/gemma-3-4b-it publishes it, and what its class in transformers assumes beside that.
GEMMA = {
    "model_type": "gemma3",
    "vision_config": {"hidden_size": 1152},
    "text_config": GEMMA_4B,
}
SUITE = """
schema = 1
name = "s"

[[benchmark]]
name = "decode"
workload = "generate"
backend = "torch"
prompt_tokens = 4
output_tokens = 4
batch_size = 8
MODEL

[[benchmark]]
name = "learn"
workload = "train"
backend = "torch"
model = "llama-tiny"
sequence_tokens = 4
batch_size_per_gpu = 2

[profile.small]
seed = 1
"""


def _write(folder: Path, values: object, name: str = "own.json") -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(values if isinstance(values, str) else json.dumps(values))
    return path


def _points(folder: Path, model: str, *settings: str, profile: str | None = None) -> tuple[Point, ...]:
    path = folder / "s.toml"
    path.write_text(SUITE.replace("MODEL", model))
    suite = read_suite(path, profile=profile, machine_kind="h200", settings=settings)
    return expand(suite, load_models(), Devices("cuda", 8)).points


def test_what_shapes_the_network_is_taken(tmp_path: Path) -> None:
    """Files, libraries and storage types are not; a null of the file stays one."""
    found = read_model_config(_write(tmp_path, LLAMA))
    gone = {"architectures", "pretraining_tp", "torch_dtype", "transformers_version", "use_cache"}
    assert found == {key: value for key, value in LLAMA.items() if key not in gone}
    assert DecoderShape.from_config(found).tied_embeddings


def test_a_text_model_is_taken_out_of_one_that_sees(tmp_path: Path) -> None:
    """Defaults of its class are written out: 34 layers, every 6th with full attention, heads of 256."""
    shape = DecoderShape.from_config(read_model_config(_write(tmp_path, GEMMA)))
    assert (shape.vocabulary, shape.heads, shape.key_value_heads, shape.head_width) == (262208, 8, 4, 256)
    assert (shape.sliding_layers, shape.window_tokens, shape.tied_embeddings) == (29, 1024, True)


@pytest.mark.parametrize("name", list(load_models()))
def test_every_shipped_shape_is_one(name: str, tmp_path: Path) -> None:
    """Each is read as it is, and means the same layers."""
    found = read_model_config(_write(tmp_path, load_models()[name]))
    assert found == load_models()[name]


def test_the_name_is_the_files_or_its_folders(tmp_path: Path) -> None:
    """With a digest of what shapes the network, whatever the order of its keys and the storage type."""
    path = _write(tmp_path, LLAMA, "mistral 7b/config.json")
    name = config_name(path, read_model_config(path))
    again = _write(tmp_path, dict(reversed({**LLAMA, "torch_dtype": "float16"}.items())), "mistral_7b.json")
    other = _write(tmp_path, {**LLAMA, "hidden_size": 128}, "mistral_7b.json2")
    assert name.startswith("mistral_7b@")
    assert config_name(again, read_model_config(again)) == name
    assert config_name(other, read_model_config(other)) != name


@pytest.mark.parametrize(
    ("model", "ids"),
    [
        ('model_config = "own.json"', ["decode"]),
        ('axes = { model_config = ["own.json", "b/own.json"] }', ["decode[model=own@A]", "decode[model=own@B]"]),
    ],
)
def test_a_file_stands_where_a_name_does(model: str, ids: list[str], tmp_path: Path) -> None:
    """Relative to the suite's folder; its points carry the shape, and the digest in the model's name."""
    own, other = _write(tmp_path, LLAMA), _write(tmp_path, {**LLAMA, "num_hidden_layers": 4}, "b/own.json")
    digests = {key: config_name(path, read_model_config(path))[4:] for key, path in {"A": own, "B": other}.items()}
    *found, _ = _points(tmp_path, model)
    assert [point.id for point in found] == [
        name.replace("@A", f"@{digests['A']}").replace("@B", f"@{digests['B']}") for name in ids
    ]
    shapes = [point.shape.layers for point in found if point.shape]
    assert shapes == [3, 4][: len(ids)]
    assert [point.settings.to_json()["model"][:4] for point in found] == ["own@"] * len(ids)


def test_a_profiles_name_replaces_the_file(tmp_path: Path) -> None:
    """And a file of the command line a name."""
    _write(tmp_path, LLAMA)
    model = 'model_config = "own.json"\n[profile.small.benchmark.decode]\nmodel = "llama-tiny"'
    assert [point.settings.to_json()["model"] for point in _points(tmp_path, model, profile="small")] == [
        "llama-tiny"
    ] * 2


def test_a_file_of_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is relative to the working directory, and replaces names and files, fixed and swept, in every benchmark."""
    here = tmp_path / "here"
    _write(tmp_path, LLAMA, "here/mine.json")
    monkeypatch.chdir(here)
    for model in ('model = "llama-tiny"', 'axes = { model = ["llama-tiny", "llama-cpu"] }'):
        found = _points(tmp_path, model, "model_config=mine.json", profile="small")
        assert [point.settings.to_json()["model"].partition("@")[0] for point in found] == ["mine", "mine"]
    (point, _) = _points(tmp_path, 'model_config = "here/mine.json"', "benchmark.decode.model=llama-cpu")
    assert point.settings.to_json()["model"] == "llama-cpu"
    with pytest.raises(
        UsageError, match=r"--set model_config=no.json: .*no.json: no such file; did you mean 'mine.json'"
    ):
        _points(tmp_path, 'model = "llama-tiny"', "model_config=no.json")


WRONG: dict[str, tuple[Any, str]] = {
    "no json": ("{", "not JSON"),
    "empty": (" ", "empty; a model's config begins with {"),
    "a list": ("[]", "found an array of 0 values, expected a table"),
    "deep": ("[" * 100_000, "not JSON"),
    "large": ('"' + "a" * 2**20 + '"', "a model's config has at most 1048576"),
    "another family": (
        {**LLAMA, "model_type": "bloom"},
        "found 'bloom'; pybench builds models of the types llama, mistral",
    ),
    "no family": ({"hidden_size": 64}, "lacks model_type; pybench builds models of the types llama"),
    "a slip": ({**LLAMA, "vocab_sise": 3}, "vocab_sise: unknown key; did you mean 'vocab_size'?; remove it if"),
    "own code": ({**LLAMA, "auto_map": {"AutoConfig": "x.Y"}}, "auto_map: unknown key; remove it if"),
    "no size": ({key: LLAMA[key] for key in LLAMA if key != "hidden_size"}, "hidden_size: missing"),
    "null": ({**LLAMA, "vocab_size": None}, "vocab_size: found null, expected an integer"),
    "text": ({**LLAMA, "vocab_size": "300"}, "vocab_size: found '300', expected an integer"),
    "endless": ({**LLAMA, "num_hidden_layers": 10**6}, "num_hidden_layers: found 1000000, must be at most 4096"),
    "infinite": (json.dumps(LLAMA).replace("1e-05", "Infinity"), "rms_norm_eps: inf is larger than any measurement"),
    "heads": ({**LLAMA, "num_key_value_heads": 3}, "num_key_value_heads: 4 attention heads are no multiple of 3"),
    "width": ({**LLAMA, "hidden_size": 66}, "num_attention_heads: hidden_size 66 is no multiple of 4"),
    "odd heads": ({**LLAMA, "head_dim": 15}, "head_dim: 15 is odd"),
    "odd key": ({**LLAMA, "we ird\n": 1}, r"'we ird\n': unknown key"),
    "activation": ({**LLAMA, "hidden_act": "x"}, "hidden_act: found 'x', valid: 'silu', 'gelu'"),
    "both ways": ({**LLAMA, "use_bidirectional_attention": True}, "use_bidirectional_attention: found true"),
    "a window": ({**LLAMA, "model_type": "mistral"}, "sliding_window: missing, and mistral needs it"),
    "long positions": (
        {
            **LLAMA,
            "model_type": "phi3",
            "sliding_window": None,
            "rope_scaling": {"type": "longrope", "long_factor": [1]},
        },
        "rope_scaling: ",
    ),
    "caps": (
        {**LLAMA, "model_type": "gemma2", "head_dim": 16, "sliding_window": 4, "query_pre_attn_scalar": 16},
        "attn_logit_softcapping: missing, and gemma2 needs it",
    ),
    "layers": ({**LLAMA, "layer_types": ["full_attention"]}, "layer_types: 1 entries for 3 layers"),
    "experts": (
        {**load_models()["gpt-oss-tiny"], "num_experts_per_tok": 9},
        "num_experts_per_tok: 9 of 8 experts",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(name: str, tmp_path: Path) -> None:
    """The error has the suite's line and key, the file and its key."""
    values, message = WRONG[name]
    _write(tmp_path, values)
    with pytest.raises(FileError) as error:
        _points(tmp_path, 'model_config = "own.json"')
    assert str(error.value).startswith(
        f'{tmp_path}/s.toml:12: [[benchmark]] "decode" -> model_config: {tmp_path}/own.json: '
    )
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ('model = "llama-tiny"\nmodel_config = "own.json"', "model and model_config both name a model; keep one"),
        ('model = "llama-tiny"\naxes = { model_config = ["own.json"] }', "model and axes.model_config both name"),
        ("model_config = 3", "found 3, expected a string"),
        ('model_config = ""', "model_config"),
        ('axes = { model_config = ["a.json", "no.json"] }', "axes.model_config[1]: "),
    ],
)
def test_a_wrong_place_is_named(model: str, message: str, tmp_path: Path) -> None:
    """Two names for one model, and an invalid path."""
    _write(tmp_path, LLAMA)
    _write(tmp_path, LLAMA, "a.json")
    with pytest.raises(FileError) as error:
        _points(tmp_path, model)
    assert message in str(error.value)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """Only a regular file is read."""
    os.mkfifo(tmp_path / "own.json")
    with pytest.raises(FileError, match=r"not a regular file; a model's config is a \.json file"):
        _points(tmp_path, 'model_config = "own.json"')
