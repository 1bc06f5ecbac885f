"""The record of a process that is stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

from tests.standstill import apart_from, standstills

_WATCHES = f"""
import sys; sys.path[:0] = {sys.path!r}
import json
from tests.standstill import standstills
with standstills() as found:
    print("begun", flush=True)
    input()
print(json.dumps(found))
"""


def test_a_process_that_is_stopped() -> None:
    """For half a second, as it notices itself."""
    with subprocess.Popen(
        (sys.executable, "-c", _WATCHES), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGSTOP)
        before_ns = time.monotonic_ns()
        time.sleep(0.5)
        after_ns = time.monotonic_ns()
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate("\n")
    assert apart_from(json.loads(out), (before_ns, after_ns)) < 100_000_000


def test_what_is_left_of_a_span() -> None:
    """75 of 100 ns with two stops of 20 and 5 ns; all 100 ns of a running process."""
    assert apart_from([(0, 30), (60, 65), (200, 300)], (10, 110)) == 75
    with standstills() as found:
        pass
    assert apart_from(found, (10, 110)) == 100
