"""Every sentence of the golden file is expected by a test."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SENTENCES = tomllib.loads((HERE / "golden" / "sentences.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("module", SENTENCES)
def test_each_sentence_is_expected(module: str) -> None:
    """By the module of tests that it is listed for."""
    *folders, name = module.split(".")
    text = HERE.joinpath(*folders, f"test_{name}.py").read_text(encoding="utf-8")
    assert [key for key in SENTENCES[module] if f'SENTENCES["{key}"]' not in text] == []
