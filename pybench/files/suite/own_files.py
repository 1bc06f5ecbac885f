"""Files that a suite names: ``model_config`` in the place of a model's name, and ``deepspeed_config``.

A published Hugging Face ``config.json`` is checked key by key, because anybody may have written it. Keys that shape the
network are taken, those about files, libraries and storage are left out, any other is refused: a key that were ignored
could mean another network. Defaults of a family's class are written out.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, create_model

from pybench.files.toml_file import KeyPath, KeyProblem, describe, did_you_mean, faults, message_of, read_json, refuse
from pybench.model.backend import MODEL_CLASSES
from pybench.model.decoder_shape import Architecture, DecoderShape
from pybench.model.errors import FileError
from pybench.model.text import listed
from pybench.model.workloads.settings import MODEL_CONFIG

MODEL = "model"
_DEEPSPEED = "deepspeed_config"
FILE_SETTINGS = frozenset((MODEL_CONFIG, _DEEPSPEED))


def with_own_files(
    document: dict[str, Any], folder: Path
) -> tuple[dict[str, Any], dict[str, Architecture], list[KeyProblem]]:
    """The document with its files' content (relative to ``folder``) in their places, its models by name, problems."""
    document = deepcopy(document)
    models: dict[str, Architecture] = {}
    problems: list[KeyProblem] = []

    def content(path: KeyPath, written: str) -> Any:  # noqa: ANN401 - a name or a table
        try:
            if path[-1] == _DEEPSPEED:
                return read_deepspeed_config(folder / written)
            architecture = read_model_config(folder / written)
        except FileError as error:
            problems.extend((path, str(problem)) for problem in error.problems)
            return None
        name = config_name(folder / written, architecture)
        models[name] = architecture
        return name

    for path, table in _tables(document):
        problems += _twofold(path, table)
        for place, values in ((path, table), ((*path, "axes"), table.get("axes", {}))):
            given = dict(values)
            values.clear()
            for key, value in given.items():  # in the same order, which is that of points
                if key not in FILE_SETTINGS:
                    values[key] = value
                elif isinstance(value, list):
                    values[MODEL] = [content((*place, key, index), each) for index, each in enumerate(value)]
                else:
                    values[MODEL if key == MODEL_CONFIG else key] = content((*place, key), value)
    return document, models, problems


def _tables(document: dict[str, Any]) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    """Every table with settings: benchmarks, profiles, and what these lay over single benchmarks."""
    for index, table in enumerate(document["benchmark"]):
        yield ("benchmark", index), table
    for name, profile in document.get("profile", {}).items():
        yield ("profile", name), profile
        for benchmark, table in profile.get("benchmark", {}).items():
            yield ("profile", name, "benchmark", benchmark), table


def _twofold(path: KeyPath, table: dict[str, Any]) -> Iterator[KeyProblem]:
    axes = table.get("axes", {})
    given: list[tuple[str, ...]] = [(key,) for key in (MODEL, MODEL_CONFIG) if key in table]
    given += [("axes", key) for key in (MODEL, MODEL_CONFIG) if key in axes]
    if len(given) > 1 and any(MODEL_CONFIG in keys for keys in given):
        names = listed(".".join(keys) for keys in given)
        yield (*path, *given[-1]), f"{names} both name a model; keep one of the two"


_REFUSED = {
    "scheduler": "the learning rate is constant here",
    "autotuning": "it would start trainings of its own",
    "elasticity": "it would change the batch",
    "data_efficiency": "it would change the samples",
    "curriculum_learning": "it would change the samples",
    "compression_training": "it would change the model",
    "flops_profiler": "it would be measured, too",
    **dict.fromkeys(("tensorboard", "wandb", "comet", "csv_monitor"), "it would write files while steps are measured"),
}


def read_deepspeed_config(path: Path) -> dict[str, Any]:
    """The file's table. Raises ``FileError`` with every key that can't be honoured at any settings."""
    config, check = read_json(path, "a DeepSpeed config", "a table of DeepSpeed's own keys")
    check("rule", (((key,), f"{why}: remove the key") for key, why in _REFUSED.items() if key in config))
    return config


_Size = Annotated[int, Field(ge=1, le=2**24)]
_Count = Annotated[int, Field(ge=1, le=4096)]
_Number = Annotated[float | int, Field(ge=-1e9, le=1e9)]
_Token = Annotated[int, Field(ge=-1, le=2**31 - 1)]
_Activation = Literal["silu", "gelu", "gelu_pytorch_tanh", "relu"]
_Word = Annotated[str, Field(pattern=r"^[a-z0-9_]{1,32}$")]
_Rope = dict[_Word, _Word | bool | _Number | None]

_Layer = Literal["full_attention", "sliding_attention"]
_REQUIRED: dict[Any, tuple[str, ...]] = {
    _Word: ("model_type",),
    _Size: ("vocab_size", "hidden_size", "intermediate_size", "max_position_embeddings"),
    _Count: ("num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
}
_OPTIONAL: dict[Any, tuple[str, ...]] = {
    _Size: ("head_dim", "original_max_position_embeddings", "sliding_window", "initial_context_length"),
    _Count: ("sliding_window_pattern", "num_local_experts", "num_experts_per_tok"),
    _Activation: ("hidden_act", "hidden_activation"),
    _Number: (
        *("rms_norm_eps", "rope_theta", "rope_local_base_freq", "attention_dropout", "embd_pdrop", "resid_pdrop"),
        *("initializer_range", "query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping"),
        *("swiglu_limit", "router_aux_loss_coef"),
    ),
    _Rope: ("rope_scaling",),
    _Rope | dict[_Word, _Rope]: ("rope_parameters",),
    bool: ("attention_bias", "mlp_bias", "tie_word_embeddings", "use_sliding_window"),
    Literal[False]: ("use_bidirectional_attention", "output_router_logits"),
    Annotated[int, Field(ge=0, le=4096)]: ("max_window_layers",),
    list[_Layer]: ("layer_types",),
    _Token: ("bos_token_id", "pad_token_id"),
    _Token | list[_Token]: ("eos_token_id",),
}
"""Keys that shape a network of a family that pybench builds, by type; an optional one may be null."""
_FIELDS: dict[str, Any] = {
    **{key: (kind, ...) for kind, keys in _REQUIRED.items() for key in keys},
    **{key: (kind | None, None) for kind, keys in _OPTIONAL.items() for key in keys},
}
_Config = create_model("config", __config__=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False), **_FIELDS)

_NOT_SHAPING = frozenset(
    (
        *("architectures", "_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache"),
        *("pretraining_tp", "quantization_config", "experts_per_token", "_sliding_window_pattern"),
        *("cache_implementation", "unsloth_fixed", "unsloth_version"),
        "sliding_window_size",  # Gemma 2: sliding_window by an earlier name
    )
)
# Defaults of the family's class in transformers for keys that published files leave out.
_ASSUMED: dict[str, Architecture] = {
    "gemma": {"tie_word_embeddings": True},
    "gemma2": {"tie_word_embeddings": True},
    "gemma3_text": {
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131072,
        "sliding_window_pattern": 6,
        "tie_word_embeddings": True,
    },
    "qwen2": {"use_sliding_window": False},
    "qwen3": {"use_sliding_window": False},
}
# Without these a class assumes what another file would not mean; null is an answer.
_NEEDED: dict[str, tuple[str, ...]] = {
    "mistral": ("sliding_window",),
    "gemma": ("head_dim",),
    "gemma2": (
        *("head_dim", "sliding_window", "query_pre_attn_scalar"),
        *("attn_logit_softcapping", "final_logit_softcapping"),
    ),
    "gemma3_text": ("sliding_window",),
    "qwen3": ("head_dim",),
    "gpt_oss": ("head_dim", "sliding_window", "layer_types", "num_local_experts", "num_experts_per_tok"),
}


def read_model_config(path: Path) -> Architecture:
    """Keys that shape the (text) network, with its family's defaults. Raises ``FileError``."""
    config, check = read_json(path, "a model's config", "a table: the config.json of a model")
    shaping = {key: value for key, value in _family(path, config).items() if key not in _NOT_SHAPING}
    architecture = {**_ASSUMED.get(shaping["model_type"], {}), **shaping}
    if architecture.get("layer_types"):
        architecture.pop("sliding_window_pattern", None)
    check("schema", _schema_problems(architecture))
    check("rule", _joint_problems(architecture))
    return architecture


def config_name(path: Path, architecture: Architecture) -> str:
    """The model's name: the file's, or its folder's for ``config.json``, with a digest of the network's keys."""
    stem = path.absolute().parent.name if path.name == "config.json" else path.stem
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', stem)[:40] or 'model'}@{config_digest(architecture)}"


def config_digest(architecture: Architecture) -> str:
    """Twelve digits of the SHA-256 over the keys in order."""
    return hashlib.sha256(json.dumps(architecture, sort_keys=True).encode()).hexdigest()[:12]


def _family(path: Path, config: Architecture) -> Architecture:
    """The config of the text model. Raises ``FileError`` for a family that nothing here builds."""
    text = config.get("text_config")
    network = text if isinstance(text, dict) and "model_type" in text else config
    family = network.get("model_type")
    if family not in MODEL_CLASSES:
        valid = f"{did_you_mean(family, MODEL_CLASSES)}; pybench builds models of the types {', '.join(MODEL_CLASSES)}"
        fault = "lacks model_type" if family is None else f"model_type: found {describe(family)}"
        raise refuse(path, f"{fault}{valid}", kind="schema")
    return network


def _schema_problems(architecture: Architecture) -> list[KeyProblem]:
    problems: dict[KeyPath, str] = {}
    for fault in faults(_Config, architecture):
        key = str(fault["loc"][0])
        unknown = f"unknown key{did_you_mean(key, _FIELDS)}; remove it if it does not shape the network"
        # Of a value that fits none of several types, the first reason is enough.
        problems.setdefault((key,), unknown if fault["type"] == "extra_forbidden" else message_of(fault, ()))
    return list(problems.items())


def _joint_problems(architecture: Architecture) -> list[KeyProblem]:
    """What single keys do not show."""
    family = architecture["model_type"]
    absent = [key for key in _NEEDED.get(family, ()) if key not in architecture]
    if absent:
        needed = f"missing, and {family} needs it; give what the model has, or null for none"
        return [((key,), needed) for key in absent]
    shape, kinds = DecoderShape.from_config(architecture), architecture.get("layer_types") or ()
    checks = {
        "num_key_value_heads": (
            shape.heads % shape.key_value_heads != 0,
            f"{shape.heads} attention heads are no multiple of {shape.key_value_heads}",
        ),
        "num_attention_heads": (
            not architecture.get("head_dim") and shape.hidden % shape.heads != 0,
            f"hidden_size {shape.hidden} is no multiple of {shape.heads}, and there is no head_dim",
        ),
        "head_dim": (shape.head_width % 2 != 0, f"{shape.head_width} is odd, so positions can't be rotated"),
        "layer_types": (len(kinds) not in {0, shape.layers}, f"{len(kinds)} entries for {shape.layers} layers"),
        "num_experts_per_tok": (
            shape.active_experts > shape.num_experts,
            f"{shape.active_experts} of {shape.num_experts} experts",
        ),
    }
    return [((key,), text) for key, (is_wrong, text) in checks.items() if is_wrong]
