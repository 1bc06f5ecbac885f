"""What ``engine_args`` may not give, refused where the suite is read."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from pybench.model.workloads.generate import Generate, decided_arguments
from pybench.model.workloads.turn import Turn
from tests.builders import suite_problems

HEAD = 'schema = 1\nname = "s"\n[[benchmark]]\nname = "g"\nmodel = "llama-3.1-8b"\n'
SIZES = "batch_size = 2\nprompt_tokens = 4\noutput_tokens = 4\n"
GENERATE = f'{HEAD}workload = "generate"\n{SIZES}'
TURN = f'{HEAD}workload = "turn"\nbackend = "vllm"\ntopology = "shared"\n{SIZES}'


@pytest.mark.parametrize(
    ("backend", "own"),
    [
        ("vllm", {"distributed_executor_backend", "node_rank", "master_addr", "master_port"}),
        ("tensorrt_llm", {"backend"}),
    ],
)
def test_every_setting_that_decides_an_argument_is_one(backend: str, own: set[str]) -> None:
    """A message names only settings that exist."""
    decided = decided_arguments(backend, Generate)
    assert {argument for argument, setting in decided.items() if setting is None} == own
    assert {*decided.values()} - {None} <= {field.name for field in fields(Generate)}
    assert decided_arguments("torch", Generate) == {}


def test_turns_name_their_own_settings_alone() -> None:
    """They lack a prefix cache, and adapters decide the engine's weights."""
    decided = decided_arguments("vllm", Turn)
    assert decided["enable_prefix_caching"] is None
    assert (decided["enable_sleep_mode"], decided["max_lora_rank"]) == ("sleep_level", "lora_rank")
    assert {*decided.values()} - {None} <= {field.name for field in fields(Turn)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f'{GENERATE}backend = "vllm"\nengine_args = {{ enable_prefix_caching = true }}\n',
            "engine_args: enable_prefix_caching: pybench sets it itself; set the benchmark's prefix_caching instead",
        ),
        (
            f'{GENERATE}engine_args = {{ max_batch_size = 4 }}\n[benchmark.axes]\nbackend = ["vllm", "tensorrt_llm"]\n',
            "engine_args: max_batch_size: pybench sets it itself; set the benchmark's max_num_seqs instead",
        ),
        (f'{GENERATE}backend = "vllm"\nengine_args = {{ max_batch_size = 4, block_size = 16 }}\n', ""),
        (
            f"{TURN}engine_args = {{ enable_prefix_caching = true }}\n",
            "engine_args: enable_prefix_caching: pybench sets it itself and has no setting for it",
        ),
        (f"{TURN}engine_args = {{ block_size = 16 }}\n", ""),
    ],
)
def test_an_argument_that_a_setting_decides_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """Before an engine starts; whether the engine has an argument is known there alone."""
    found = suite_problems(tmp_path, text)
    assert message in found if message else found == ""
