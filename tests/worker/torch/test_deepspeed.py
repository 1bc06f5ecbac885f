"""The configuration of DeepSpeed, with a fake package: the names are DeepSpeed 0.19.8's."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("transformers")
import torch
from torch import nn

from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.train.learner import Task
from pybench.worker.backends.torch.train.training import trained_parameters
from tests.worker.torch.train_ranks import TINY, settings_of

NAME = "pybench.worker.backends.torch.train.strategies.deepspeed"


class Builder:
    """As ``deepspeed.ops.op_builder.CPUAdamBuilder``."""

    name = "cpu_adam"

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def load(self, verbose: bool = True) -> None:
        """Compile, or raise as a machine without a compiler does."""
        assert not verbose, "its output would go to the attempt's log"
        if self._error is not None:
            raise self._error


@pytest.fixture
def strategy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The strategy's module, imported with the stand-in, and forgotten afterwards."""
    stand_in = {name: ModuleType(name) for name in ("deepspeed", "deepspeed.ops", "deepspeed.ops.op_builder")}
    stand_in["deepspeed.ops.op_builder"].CPUAdamBuilder = Builder  # type: ignore[attr-defined]
    for name, module in stand_in.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    yield importlib.import_module(NAME)
    sys.modules.pop(NAME, None)


def zero(strategy: Any, *, own_adam: bool, **options: Any) -> Any:
    task = Task(settings_of({"strategy": "deepspeed", **options}), TINY, TorchRanks(0, 1, torch.device("cpu")))
    config = strategy.configuration(task, own_adam=own_adam)
    engine = ModuleType("engine")
    engine.module = None  # type: ignore[attr-defined]
    model_config = ModuleType("config")
    model_config.layer_types = None  # type: ignore[attr-defined]
    strategy.sequence_masks = lambda *_: None
    return config, strategy.Zero(engine, task, model_config, own_adam=own_adam).metrics()


@pytest.mark.parametrize("error", [None, RuntimeError("Unable to JIT load the cpu_adam op"), FileNotFoundError("c++")])
def test_its_own_adam_updates_in_host_memory_where_it_builds(
    strategy: Any, capfd: pytest.CaptureFixture[str], error: Exception | None
) -> None:
    """Else torch's, which the figure then names, with the reason in the log."""
    builds = strategy.builds(Builder(error))
    assert builds == (error is None)
    assert capfd.readouterr().err == ("" if error is None else f"cpu_adam of DeepSpeed does not build: {error}\n")
    config, metrics = zero(strategy, own_adam=builds, offload_optimizer=True)
    assert config["optimizer"]["params"]["torch_adam"] is not builds
    assert [(metric.name, metric.value) for metric in metrics] == [("torch_adam_fallback", float(not builds))]


def test_keys_of_a_file_join_those_of_the_settings(strategy: Any) -> None:
    """At every depth; "auto" is what pybench has, or what DeepSpeed does without the key."""
    own = {
        "zero_optimization": {"stage": 2, "overlap_comm": True, "reduce_bucket_size": "auto"},
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}},
        "bf16": {"enabled": "auto"},
        "train_micro_batch_size_per_gpu": "auto",
        "communication_data_type": "fp32",
    }
    without, _ = zero(strategy, own_adam=False)
    config, _ = zero(strategy, own_adam=False, deepspeed_config=own)
    assert config == {
        **without,
        "zero_optimization": {"stage": 2, "overlap_comm": True},
        "communication_data_type": "fp32",
    }


def test_a_limit_on_the_norm_is_its_own_and_nothing_is_clipped_without(strategy: Any) -> None:
    """Its default clips at 1. Without offloading there is nothing to stand in for."""
    config, metrics = zero(strategy, own_adam=False)
    assert config["gradient_clipping"] == 0.0
    assert metrics == ()
    assert zero(strategy, own_adam=False, max_grad_norm=0.3)[0]["gradient_clipping"] == 0.3


def test_parameters_that_zero_split_count_whole() -> None:
    """Its third stage leaves nothing of them on a rank but their size; frozen ones do not count."""
    split, frozen = nn.Parameter(torch.empty(0)), nn.Parameter(torch.empty(5), requires_grad=False)
    split.ds_numel = 12  # type: ignore[attr-defined]
    task = Task(settings_of({"strategy": "deepspeed", "zero_stage": 3}), TINY, TorchRanks(0, 1, torch.device("cpu")))
    learner: Any = SimpleNamespace(parameters=lambda: [split, nn.Parameter(torch.empty(3, 4)), frozen])
    assert trained_parameters(task, learner).value == 24
