"""The image lock as a table."""

from __future__ import annotations

from dataclasses import replace

from pybench.images.lock import default_lock, read_lock
from pybench.report.images import render


def test_a_lock_steers_no_terminal() -> None:
    """Somebody else's lock may hold escapes."""
    lock = read_lock(default_lock())
    evil = replace(lock.images[0], repository="a\x1b[31m\x9b\u202e", verified_by="b\n\x07")
    text = render(replace(lock, images=(evil,)), "linux/amd64", {})
    assert len(text.splitlines()) == 2
    assert text.replace("\n", "").isprintable()
