"""The kernel's count of processes that it ended for want of memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybench.run.attempt import num_oom_kills


@pytest.mark.parametrize(
    ("text", "expected"),
    [("nr_free_pages 9\noom_kill 3\nzone_reclaim 0\n", 3), ("nr_free_pages 9\n", None), ("oom_kill\n", None)],
)
def test_its_line_is_found(tmp_path: Path, text: str, expected: int | None) -> None:
    """Older kernels do not count."""
    path = tmp_path / "vmstat"
    path.write_text(text)
    assert num_oom_kills(path) == expected


def test_without_the_file() -> None:
    """On another system."""
    assert num_oom_kills(Path("/nonexistent")) is None
