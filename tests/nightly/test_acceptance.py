"""An accepted change is about one point or a whole suite, on one machine or on every machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pybench.core.keys import run_keys
from pybench.core.provenance import run_fields
from pybench.model.figures import RunFigures
from pybench.nightly.accepted import about, of_all_points, unused
from pybench.nightly.history import Series
from pybench.nightly.values import Accepted, HostShift, LevelChange
from tests.builders import H200, HOST, MACHINE, RESULTS
from tests.golden_sentences import sentences_of
from tests.nights import Fleet

SENTENCES = sentences_of("nightly.acceptance")

FIRST, SECOND = "GPU-739c0fb5-d7b3-5f86-545d-0c41f279dd44", "GPU-d3ac301e-b2a5-73e5-a265-00eba18f9fb0"
ENTRY = Accepted(suite="s", since="2026-01-02", reason="r")


def run(*uuids: str, suite: str = "s", night: int = 3) -> RunFigures:
    """A run of two points, on this number of GPUs."""
    last = Fleet(num_points=2).series(np.random.default_rng(1), night).last
    names = ", ".join(f'"NVIDIA H200 {uuid}"' for uuid in uuids)
    return replace(last, suite=suite, keys={"gpu": f"[{names}]", "suite": suite})


@pytest.mark.parametrize(
    ("entry", "is_about"),
    [
        (ENTRY, True),
        (replace(ENTRY, suite="other"), False),
        (replace(ENTRY, suite=None, point="p0"), True),
        (replace(ENTRY, point="p0"), True),
        (replace(ENTRY, gpu=SECOND), True),
        (replace(ENTRY, gpu="GPU-0"), False),
        (replace(ENTRY, suite="other", gpu=SECOND), False),
    ],
)
def test_an_entry_is_about_its_suite_and_machine(entry: Accepted, *, is_about: bool) -> None:
    """Any GPU of a machine names it; what is left out is every one."""
    assert bool(about(Series((run(FIRST, SECOND),)), (entry,))) == is_about


def test_an_entry_may_name_a_gpu_of_any_host() -> None:
    """Of a run over several hosts, whose other hosts are one key each; the entry to copy names the leading host's."""
    leading, other = (replace(MACHINE, gpus=(replace(H200, uuid=uuid),)) for uuid in (FIRST, SECOND))
    hosts = (replace(HOST, machine=leading), replace(HOST, name="b", machine=other))
    results = replace(RESULTS, machine_fields=run_fields(leading, hosts))
    over_hosts = replace(run(FIRST), keys=run_keys(results))
    assert about(Series((over_hosts,)), (replace(ENTRY, gpu=SECOND),))
    assert of_all_points(over_hosts, ()).gpu == FIRST
    (words,) = unused((replace(ENTRY, gpu="GPU-0"),), over_hosts, ())
    assert words.endswith(f"this one has {FIRST}, {SECOND}")


def test_a_machine_keeps_its_entries_when_a_board_is_replaced() -> None:
    """With --across gpu its earlier runs have the GPU that an entry names."""
    series = Series((run(FIRST, night=2), run(SECOND)))
    assert about(series, (replace(ENTRY, gpu=FIRST),))


@pytest.mark.parametrize("text", ["", "[", "7", "[7]", "{}", '{"gpus": 7}', "[" * 5000])
def test_a_run_of_unknown_gpus_has_none(text: str) -> None:
    """A file can hold any text."""
    odd = replace(run(), keys={"gpu": text})
    assert about(Series((odd,)), (replace(ENTRY, gpu=FIRST), ENTRY)) == (ENTRY,)
    assert of_all_points(odd, ()).gpu is None


def test_what_accepts_a_host_begins_when_all_of_it_had_changed() -> None:
    """Its energy two nights after its speed; tonight, where no night is known. Nobody has given a reason."""
    speed = HostShift(noun="speed", fraction=-0.05, num_shifted=2, num_points=2, level_change=_since("2026-01-02"))
    energy = replace(speed, noun="energy", level_change=_since("2026-01-04"))
    found = of_all_points(run(FIRST, SECOND), (energy, speed))
    assert found == Accepted(suite="s", gpu=FIRST, since="2026-01-04", reason="")
    assert of_all_points(run(), (replace(speed, level_change=None),)).since == "2026-01-04"
    assert of_all_points(run(night=9), (replace(speed, level_change=None),)).since == "2026-01-10"


def _since(date: str) -> LevelChange:
    return LevelChange(since=date, earliest=date, latest=date, fraction=-0.05)


def test_an_entry_of_all_points_that_does_not_count_is_named() -> None:
    """A later date; a suite, a machine, a point or a metric that no run has. One of another suite's runs is silent."""
    entries = (
        ENTRY,
        replace(ENTRY, suite="other"),
        replace(ENTRY, gpu=SECOND),
        replace(ENTRY, since="2027-01-01"),
        replace(ENTRY, suite="nope"),
        replace(ENTRY, gpu="GPU-0"),
        replace(ENTRY, suite="other", gpu=FIRST),
        replace(ENTRY, point="p7"),
        replace(ENTRY, metric="ttft_s"),
    )
    assert list(unused(entries, run(FIRST), (run(SECOND, suite="other"), run(FIRST, SECOND, night=2)))) == [
        SENTENCES["an_entry_of_all_points_that_does_not"],
        SENTENCES["an_entry_of_all_points_that_does_not_2"],
        f"not accepted: every point of s on GPU-0: no run here of s has such a GPU; this one has {FIRST}",
        f"not accepted: every point of other on {FIRST}: no run here of other has such a GPU; this one has {FIRST}",
        SENTENCES["an_entry_of_all_points_that_does_not_3"],
        SENTENCES["an_entry_of_all_points_that_does_not_4"],
    ]
