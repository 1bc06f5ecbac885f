"""Line numbers of keys."""

from __future__ import annotations

from pybench.files.toml_file import toml_lines


def test_every_form_of_key() -> None:
    """Dotted and quoted keys, array tables and their sub-tables, arrays over lines, inline tables."""
    lines = toml_lines('a."b c" = 1\n[[t]]\n[t.u]\nq = [1, # one\n2]\n[[t]]\nw = {x = 1}\n')
    assert lines["a", "b c"] == 1
    assert lines["t", 0, "u"] == 3
    assert (lines["t", 0, "u", "q", 0], lines["t", 0, "u", "q", 1]) == (4, 5)
    assert (lines["t", 1], lines["t", 1, "w", "x"]) == (6, 7)
