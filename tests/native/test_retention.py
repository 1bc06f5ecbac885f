"""What a recording of days keeps, by a native program that records faster than time."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

HOURS = 24
MOST_BYTES = 8 * 2**20
# A row of the series, and its part of those of the polled fields, which come five times as seldom.
BYTES_A_SAMPLE = 16 + 32 / 5


class Kept(NamedTuple):
    """Rows of the series at most, in the end, near and far from old marks; of the counter, of offsets; times in s."""

    most: int
    samples: int
    near: int
    far: int
    counter: int
    offsets: int
    first_s: float
    last_s: float


@pytest.fixture(scope="module")
def recorded(native: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[float], Kept]:
    options = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1")
    sources = ("tests/native/retention.cpp", "csrc/retention.cpp")
    program = native(tmp_path_factory.mktemp("retention") / "retention", *sources, *options)

    def run(mark_s: float) -> Kept:
        command = [str(program), str(mark_s), str(HOURS), str(MOST_BYTES)]
        words = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        return Kept(*map(int, words[:6]), *map(float, words[6:]))

    return run


@pytest.mark.parametrize("mark_s", [0, 3600, 0.02])
def test_a_day_takes_bounded_memory_and_keeps_the_newest(recorded: Callable[[float], Kept], mark_s: float) -> None:
    """With no mark, with some, and with one every 20 ms; a row of room for what came since it was last looked at."""
    kept = recorded(mark_s)
    assert kept.most * BYTES_A_SAMPLE <= 1.01 * MOST_BYTES
    assert kept.last_s == pytest.approx(HOURS * 3600, abs=0.03)
    assert kept.offsets <= 2**16
    assert kept.samples * BYTES_A_SAMPLE >= MOST_BYTES / 4


def test_what_lies_near_an_old_mark_stays(recorded: Callable[[float], Kept]) -> None:
    """Marks once an hour: in the first tenth of a day there are three, the first one with one side."""
    kept = recorded(3600)
    assert kept.near == pytest.approx(5 * 30 * 50, abs=5)
    assert kept.far == 0
    assert kept.counter == HOURS * 60


def test_marks_everywhere_keep_the_newest_only(recorded: Callable[[float], Kept]) -> None:
    kept = recorded(0.02)
    assert kept.first_s > HOURS * 3600 / 2
