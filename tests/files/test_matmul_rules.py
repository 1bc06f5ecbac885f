"""Products that no GPU multiplies are refused when the suite is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import suite_problems

HEAD = 'schema = 1\nname = "s"\n[[benchmark]]\nname = "p"\nworkload = "matmul"\nbackend = "torch"\n'
FP8 = 'precision = "float8_e4m3fn"\n'
WHY = "float8_e4m3fn multiplies sides that are multiples of 16, found"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{FP8}m = 1000\n", f"m: {WHY} 1000: take 992 or 1008, or another precision"),
        (f"{FP8}k = 8\n", f"k: {WHY} 8: take 16, or another precision"),
        (f"{FP8}[benchmark.axes]\nn = [64, 65, 66]\n", f"axes.n: {WHY} 65: take 64 or 80, or another precision"),
        ('n = 65\n[benchmark.axes]\nprecision = ["bfloat16", "float8_e4m3fn"]\n', f"n: {WHY} 65: take 64 or 80"),
        (f"{FP8}m = 1008\nn = 16\n[benchmark.axes]\nk = [32, 64]\n", ""),
        ('n = 65\nprecision = "bfloat16"\n', ""),
        ("n = 65\n", ""),
    ],
)
def test_sides_of_fp8_products(tmp_path: Path, text: str, message: str) -> None:
    """Named with their key and the nearest that work, also where an axis has one; other types take any side."""
    found = suite_problems(tmp_path, f"{HEAD}{text}")
    assert (message in found) if message else found == ""
