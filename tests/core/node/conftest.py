"""A node of eight GPUs, for drills that break one thing."""

from __future__ import annotations

import pytest

from tests.nodes import Node


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def make_node() -> type[Node]:
    return Node
