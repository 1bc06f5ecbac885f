"""Benchmarks that generate or evaluate and make no sense are refused."""

from __future__ import annotations

from pathlib import Path

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
