"""A user's DeepSpeed file: keys that it may add, and values that must agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pybench.core.plan import expand
from pybench.files.shipped import load_models
from pybench.files.suite.file import read_suite
from pybench.model.errors import FileError
from pybench.model.machine import Devices
from pybench.model.suite import Plan

SUITE = """
schema = 1
name = "s"

[[benchmark]]
name = "zero"
workload = "train"
backend = "torch"
strategy = "deepspeed"
model = "llama-tiny"
sequence_tokens = 4
batch_size_per_gpu = 2
max_grad_norm = 0.5
deepspeed_config = "ds.json"
axes = { zero_stage = [1, 2] }
"""
# As a guide for transformers has it.
OWN = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": 2,
    "gradient_clipping": 0.5,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}},
    "zero_optimization": {"stage": "auto", "overlap_comm": True, "offload_optimizer": {"device": "none"}},
    "steps_per_print": 2000,
}


def _plan(folder: Path, own: object, *settings: str, text: str = SUITE) -> Plan:
    (folder / "ds.json").write_text(own if isinstance(own, str) else json.dumps(own))
    (folder / "s.toml").write_text(text)
    suite = read_suite(folder / "s.toml", profile=None, machine_kind="h200", settings=settings)
    return expand(suite, load_models(), Devices("cuda", 1))


def test_its_table_is_a_setting(tmp_path: Path) -> None:
    """It reaches workers, is recorded, and is part of the point's digest."""
    plan = _plan(tmp_path, OWN)
    assert [point.settings.to_json()["deepspeed_config"] for point in plan.points] == [OWN, OWN]
    again = _plan(tmp_path, {**OWN, "steps_per_print": 1})
    assert not {point.digest for point in plan.points} & {point.digest for point in again.points}


def test_a_file_of_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is relative to the working directory."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "other.json").write_text('{"steps_per_print": 7}')
    monkeypatch.chdir(here)
    plan = _plan(tmp_path, OWN, "deepspeed_config=other.json")
    assert [point.settings.to_json()["deepspeed_config"] for point in plan.points] == [{"steps_per_print": 7}] * 2


CONFLICTS: dict[str, tuple[dict[str, Any], str]] = {
    "stage": ({"zero_optimization": {"stage": 3}}, "zero_optimization.stage is 3, and zero_stage gives 1"),
    "clipping": ({"gradient_clipping": 1.0}, "gradient_clipping is 1.0, and max_grad_norm gives 0.5"),
    "type": ({"fp16": {"enabled": True}}, "fp16.enabled is True, and dtype gives False"),
    "batch": ({"train_micro_batch_size_per_gpu": 4}, "train_micro_batch_size_per_gpu is 4, and the batch size gives 2"),
    "passes": ({"gradient_accumulation_steps": 8}, "gradient_accumulation_steps is 8, and grad_accum gives 1"),
    "whole batch": ({"train_batch_size": 64}, "train_batch_size is 64, and the effective batch gives 2"),
    "offload": (
        {"zero_optimization": {"offload_optimizer": {"device": "nvme"}}},
        "zero_optimization.offload_optimizer.device is 'nvme', and offload_optimizer gives 'none'",
    ),
    "rate": (
        {"optimizer": {"type": "AdamW", "params": {"lr": 1.0}}},
        "optimizer.params.lr is 1.0, and learning_rate gives 0.0001",
    ),
    "optimizer": ({"optimizer": {"type": "Lamb"}}, "optimizer.type is 'Lamb', and pybench gives 'AdamW'"),
    "moments": ({"optimizer": {"params": {"betas": [0.9, 0.95]}}}, "optimizer.params.betas is pybench's own to set"),
}


@pytest.mark.parametrize("name", CONFLICTS)
def test_a_contradiction_is_named_by_key_and_setting(name: str, tmp_path: Path) -> None:
    """The point is skipped, and no other value is taken in silence."""
    own, message = CONFLICTS[name]
    plan = _plan(tmp_path, own)
    assert f"deepspeed_config: {message}" in plan.skips[0].reason


WRONG: dict[str, tuple[object, str]] = {
    "no json": ("{", "not JSON"),
    "a list": ("[1]", "found an array of 1 value, expected a table of DeepSpeed's own keys"),
    "a schedule": (
        {"scheduler": {"type": "WarmupLR"}},
        "scheduler: the learning rate is constant here: remove the key",
    ),
    "a monitor": ({"tensorboard": {"enabled": True}}, "tensorboard: it would write files while steps are measured"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(name: str, tmp_path: Path) -> None:
    """The error has the suite's line and key, the file and its key."""
    own, message = WRONG[name]
    with pytest.raises(FileError) as error:
        _plan(tmp_path, own)
    assert f's.toml:14: [[benchmark]] "zero" -> deepspeed_config: {tmp_path}/ds.json: ' in str(error.value)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"deepspeed"', '"ddp"', "strategy ddp has no deepspeed_config, only deepspeed"),
        ('"ds.json"', "{ a = 1 }", "found a table, expected a string"),
        ("zero_stage = [1, 2]", 'deepspeed_config = ["ds.json"]', "axes.deepspeed_config: unknown key"),
    ],
)
def test_a_wrong_place_is_named(old: str, new: str, message: str, tmp_path: Path) -> None:
    """Only strategy deepspeed has it, as one file."""
    with pytest.raises(FileError) as error:
        _plan(tmp_path, OWN, text=SUITE.replace(old, new))
    assert message in str(error.value)
