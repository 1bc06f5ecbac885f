"""Every sentence of the golden file is expected by a test."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import get_args

import pytest

from pybench.model.errors import ProblemKind
from pybench.model.workloads.traits import Fault, Lack

HERE = Path(__file__).parent
SENTENCES = tomllib.loads((HERE / "golden" / "sentences.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("module", SENTENCES)
def test_each_sentence_is_expected(module: str) -> None:
    """The module of tests that it is listed for has its key."""
    *folders, name = module.split(".")
    text = HERE.joinpath(*folders, f"test_{name}.py").read_text(encoding="utf-8")
    assert [key for key in SENTENCES[module] if f'SENTENCES["{key}"]' not in text] == []


def test_each_kind_has_an_example() -> None:
    """Of a point that is not measured, and of a problem in a file: other tests compare kinds."""
    keys = {key for sentences in SENTENCES.values() for key in sentences}
    assert {*get_args(Lack), *get_args(Fault), *get_args(ProblemKind)} - keys == set()
