"""A failing test waits for no process."""

from __future__ import annotations

import signal
import subprocess

import pytest

from tests.processes import settled


def test_a_process_ends_with_the_assertion_that_failed_beside_it() -> None:
    """It would sleep for ten minutes more."""
    with pytest.raises(AssertionError), subprocess.Popen(("sleep", "600")) as process:
        raise AssertionError
    assert process.returncode == -signal.SIGKILL


def test_a_process_without_a_failure_is_waited_for() -> None:
    """To its own end."""
    with subprocess.Popen(("true",)) as process:
        pass
    assert process.returncode == 0


def test_a_look_settles_on_what_is_expected() -> None:
    """The look that is returned is the one that was compared; a look that never agrees is returned at the limit."""
    looks = iter((1, 2, 3))
    assert settled(looks.__next__, 2) == 2
    assert next(looks) == 3
    assert settled(lambda: 1, 2, limit_s=0) == 1
