"""Recipes of images that come with pybench pin what they build from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pybench.run.images.lock import read_lock

CONTAINERS = Path(__file__).parents[3] / "containers"


@pytest.mark.parametrize("path", sorted(CONTAINERS.glob("*/Dockerfile")), ids=lambda path: path.parent.name)
def test_the_shipped_recipes(path: Path) -> None:
    """From an image of the lock, by the digest that stands for all platforms, and every package by hash."""
    text = path.read_text()
    bases = re.findall(r"^FROM (\S+)$", text, re.MULTILINE)
    locked = {f"{image.repository}@{image.index_digest}" for image in read_lock(CONTAINERS / "images.toml").images}
    assert bases
    assert set(bases) <= locked
    assert len(re.findall(r"\bpip3?\s+install\b", text)) == text.count("--require-hashes") > 0
