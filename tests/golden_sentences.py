"""Whole sentences that tests expect: ``golden/sentences.toml`` has them, so that one place changes with a wording."""

from __future__ import annotations

import tomllib
from pathlib import Path

_GOLDEN = Path(__file__).with_name("golden") / "sentences.toml"


def sentences_of(module: str) -> dict[str, str]:
    """The sentences of a test module such as ``core.verdict``, by test."""
    found: dict[str, str] = tomllib.loads(_GOLDEN.read_text(encoding="utf-8"))[module]
    return found
