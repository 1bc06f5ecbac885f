"""A failing test waits for no process."""

from __future__ import annotations

import signal
import subprocess

import pytest


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
