"""Unsloth's arguments have the names of its release; tests with the library run where it is installed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("transformers")
import torch
from transformers import AutoConfig, AutoTokenizer

from pybench.model.workloads.train import Train
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.train.learner import Task

RECORDED: dict[str, list[str]] = json.loads(
    Path(__file__).parents[1].joinpath("recorded", "unsloth-2026.10.9.json").read_text()
)


@pytest.fixture
def strategy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The strategy's module over a library without functions."""
    name = "pybench.worker.backends.torch.train.strategies.unsloth"
    library: Any = ModuleType("unsloth")
    library.FastLanguageModel = None
    monkeypatch.setitem(sys.modules, "unsloth", library)
    for variable in ("UNSLOTH_DISABLE_STATISTICS", "UNSLOTH_WARN_UNINITIALIZED"):
        monkeypatch.setenv(variable, "0")
    sys.modules.pop(name, None)
    yield import_module(name)
    sys.modules.pop(name, None)


def task(architecture: dict[str, Any], **options: Any) -> Task:
    settings = Train(backend="torch", model="tiny", global_batch_size=2, sequence_tokens=8, **options)
    return Task(settings, architecture, TorchRanks(0, 1, torch.device("cpu")))


@pytest.mark.parametrize("options", [{}, {"lora_rank": 4, "activation_checkpointing": "full"}])
def test_every_keyword_is_known(strategy: Any, architecture: dict[str, Any], options: dict[str, Any]) -> None:
    """Full fine-tuning passes them to FastModel, which must accept them, too."""
    found = strategy.loading(task(architecture, **options), "folder")
    assert set(found) <= set(RECORDED["FastLanguageModel.from_pretrained"]) & set(RECORDED["FastModel.from_pretrained"])
    assert found["full_finetuning"] == ("lora_rank" not in options)
    assert found["use_gradient_checkpointing"] == ("unsloth" if options else False)
    assert found["device_map"] == {"": "cpu"}
    assert "use_gradient_checkpointing" in RECORDED["FastLlamaModel.for_training"]


def test_adapters_are_those_of_every_strategy(strategy: Any, architecture: dict[str, Any]) -> None:
    """Rank, twice the rank, queries and values, no dropout: its own defaults are others."""
    found = strategy.adapting(task(architecture, lora_rank=4).settings)
    assert set(found) <= set(RECORDED["FastLlamaModel.get_peft_model"])
    assert (found["r"], found["lora_alpha"], found["target_modules"]) == (4, 8, ["q_proj", "v_proj"])
    assert found["lora_dropout"] == 0.0


def test_the_folder_loads_without_a_network(strategy: Any, architecture: dict[str, Any]) -> None:
    """Config, tokenizer with a padding token of its own, and a checkpoint; gone afterwards."""
    with strategy.loadable_folder(task(architecture)) as folder:
        assert AutoConfig.from_pretrained(folder).hidden_size == architecture["hidden_size"]
        tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        assert tokenizer.pad_token not in {tokenizer.eos_token, tokenizer.unk_token}
        assert (Path(folder) / "model.safetensors").exists()
    assert not Path(folder).exists()
