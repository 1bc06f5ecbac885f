"""What drills on a fake driver need."""

from __future__ import annotations

import pytest

from pybench.machine import health_watch


@pytest.fixture
def fake_node(fresh_nvml: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose kernel log has no XIDs, whatever this machine's own log has."""
    monkeypatch.setattr(health_watch, "read_xids", lambda: ())
