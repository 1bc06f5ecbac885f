"""A pure test that starts a process fails."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from tests.tiers import TIERS

STARTS: dict[str, Callable[[], object]] = {
    "subprocess": partial(subprocess.run, [sys.executable, "-V"], check=True),
    "fork": os.fork,
    "posix_spawn": partial(os.posix_spawn, sys.executable, [sys.executable, "-V"], {}),
    "system": partial(os.system, "true"),
    "spawned": multiprocessing.get_context("spawn").Process(target=int).start,
    "by a fork server": multiprocessing.get_context("forkserver").Process(target=int).start,
}


@pytest.mark.parametrize("way", STARTS)
def test_a_pure_test_may_not_start_a_process(request: pytest.FixtureRequest, way: str) -> None:
    """Whichever way it tries, and nothing is started; the message names the test and the way out."""
    with pytest.raises(pytest.fail.Exception) as failed:
        STARTS[way]()
    assert str(failed.value).startswith(f"{request.node.nodeid} is pure and must not start a process (")
    assert str(failed.value).endswith("move it to a folder of another tier")


def survivor() -> None:
    """Code under test that goes on after any error."""
    with suppress(Exception):
        subprocess.run([sys.executable, "-V"], check=True)


def test_an_except_clause_hides_nothing() -> None:
    """The test fails all the same."""
    with pytest.raises(pytest.fail.Exception):
        survivor()


def test_each_tier_is_a_mark(request: pytest.FixtureRequest) -> None:
    """This test has its folder's, and no other."""
    assert [mark.name for mark in request.node.iter_markers() if mark.name in TIERS] == ["pure"]
    registered = {line.partition(":")[0] for line in request.config.getini("markers")}
    assert set(TIERS) <= registered
