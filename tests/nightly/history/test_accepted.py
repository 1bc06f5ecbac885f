"""Accepted changes as the file has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybench.model.errors import FileError
from pybench.nightly.accepted import entry_text, read_accepted
from pybench.nightly.values import Accepted

OF_ALL = Accepted(suite="tp_scaling", gpu="GPU-739c0fb5-d7b3-5f86-545d-0c41f279dd44", since="2026-11-20", reason="r")
OF_ONE = Accepted(point='p "1"', metric="ttft_s", since="2026-11-21", reason="two\nlines")
OF_BOTH = Accepted(suite="s", point="p", since="2026-11-22", reason="r")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Whether it is about a suite, a point, or a point of one suite."""
    path = tmp_path / "accepted.toml"
    entries = (OF_ALL, OF_ONE, OF_BOTH)
    path.write_text("schema = 1\n" + "".join(map(entry_text, entries)))
    assert read_accepted(path) == entries


def test_an_entry_is_written_as_people_write_it() -> None:
    """Each key on a line, the date as a date."""
    assert entry_text(OF_ALL).splitlines() == [
        "[[accepted]]",
        'suite = "tp_scaling"',
        'gpu = "GPU-739c0fb5-d7b3-5f86-545d-0c41f279dd44"',
        "date = 2026-11-20",
        'reason = "r"',
    ]


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        (Accepted(suite="s", since="2026-11-20", reason=""), ("schema", 6, "accepted[0].reason")),
        (Accepted(since="2026-11-20", reason="r"), ("rule", 3, "accepted[0]")),
        (Accepted(gpu=OF_ALL.gpu, since="2026-11-20", reason="r"), ("rule", 3, "accepted[0]")),
        (Accepted(suite="", since="2026-11-20", reason="r"), ("schema", 4, "accepted[0].suite")),
    ],
)
def test_an_entry_without_a_reason_or_of_everything_is_refused(tmp_path: Path, entry: Accepted, place: object) -> None:
    """Somebody writes why, and what: a forgotten point accepts no other one."""
    path = tmp_path / "accepted.toml"
    path.write_text("schema = 1\n\n" + entry_text(entry))
    with pytest.raises(FileError) as raised:
        read_accepted(path)
    (problem,) = raised.value.problems
    assert (problem.file, (problem.kind, problem.line, problem.path)) == (str(path), place)
