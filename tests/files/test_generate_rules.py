"""Benchmarks that generate or evaluate and make no sense are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import suite_problems

HEAD = (
    'schema = 1\nname = "s"\n[[benchmark]]\nname = "g"\nbackend = "transformers"\nmodel = "llama-cpu"\n'
    "batch_size = 2\nprompt_tokens = 4\noutput_tokens = 4\n"
)


def test_beams_belong_to_decoding(tmp_path: Path) -> None:
    """A loss decodes nothing, also where an axis has both methods."""
    evaluate = f'{HEAD}workload = "evaluate"\n'
    message = "beams: belongs to method 'generation'; a loss decodes nothing"
    assert message in suite_problems(tmp_path, f'{evaluate}method = "loss"\nbeams = 2\n')
    axes = '[benchmark.axes]\nmethod = ["loss", "generation"]\nbeams = [1, 2]\n'
    assert message in suite_problems(tmp_path, f"{evaluate}{axes}")
    assert suite_problems(tmp_path, f'{evaluate}method = "generation"\n[benchmark.axes]\nbeams = [1, 2]\n') == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('device_map = "spread"', "valid: 'auto' or 'sequential'"),
        ('[benchmark.axes]\ndevice_map = ["auto", "sequential"]', ""),
    ],
)
def test_where_layers_may_lie(tmp_path: Path, text: str, message: str) -> None:
    """Words in an axis; a word of the library's."""
    found = suite_problems(tmp_path, f'{HEAD}workload = "generate"\npipeline_parallel = 2\n{text}\n')
    assert message in found if message else found == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('device_map = "sequential"', "device_map: spreads layers over GPUs: give pipeline_parallel above 1"),
        ('device_map = "sequential"\n[benchmark.axes]\npipeline_parallel = [1, 2]', ""),
        ('device_map = "auto"', ""),
    ],
)
def test_a_way_to_spread_layers_needs_gpus_to_spread_over(tmp_path: Path, text: str, message: str) -> None:
    """At some point of the benchmark; its baseline has one GPU."""
    found = suite_problems(tmp_path, f'{HEAD}workload = "generate"\n{text}\n')
    assert message in found if message else found == ""
