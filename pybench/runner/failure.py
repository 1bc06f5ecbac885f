"""How an attempt failed, by what its worker reported and how it ended."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from pathlib import Path

from pybench.engines.log import log_tail
from pybench.model.wire import Failure, FailureCause
from pybench.runner.events import RankLog
from pybench.runner.root_cause import root_cause

# A rank's end in torchrun's report.
_EXIT_CODE = re.compile(r"exitcode\s*: (-?\d{1,5})\b")

# The cause nearest the root, when ranks disagree: one rank's trouble makes the others fail in a collective.
_CAUSE_ORDER: tuple[FailureCause, ...] = (
    "out_of_memory",
    "missing_package",
    "unsupported",
    "engine",
    "wrong_result",
    "exception",
)


def failure(cause: FailureCause, message: str, log: Path) -> Failure:
    """A failure whose detail is the end of the worker's log."""
    return Failure(cause=cause, message=message, detail=log_tail(log))


def failure_of_exit(code: int, ranks: Sequence[RankLog], log: Path) -> Failure | None:
    """What exit code (negative: signal) and events of an ended worker show of its last attempt."""
    reported = sorted((r.failure for r in ranks if r.failure), key=lambda f: _CAUSE_ORDER.index(f.cause))
    killed = _killing_signal(log_tail(log)) if code > 0 else None
    if reported and not (killed and reported[0].cause == "exception"):
        return root_cause(reported[0], log_tail(log))
    if code < 0:
        return failure("signal", f"ended by signal {-code}, {last_seen(ranks)}", log)
    if code > 0:
        # torchrun reports a rank's death in its log and exits 1 itself; its siblings report only that a peer is gone.
        if killed:
            return failure("signal", f"a rank was ended by signal {killed}, {last_seen(ranks)}", log)
        return failure("exit_code", f"exit code {code} without a result, {last_seen(ranks)}", log)
    if silent := [rank for rank, said_so in enumerate(ranks) if said_so.result is None]:
        return failure("protocol", f"exit code 0, but no result from rank {silent[0]}", log)
    return None


def _killing_signal(log: str) -> int | None:
    """Signal that ended a rank, by torchrun's report, whose last entry is the first failure it saw.

    SIGTERM counts there alone: with it torchrun itself ends the ranks that a failed one leaves behind.
    """
    codes = [int(code) for code in _EXIT_CODE.findall(log)]
    signals = [-code for code in codes if code < 0 and (code == codes[-1] or code != -signal.SIGTERM)]
    return signals[-1] if signals else None


def last_seen(ranks: Sequence[RankLog]) -> str:
    """How far the first rank came."""
    first = ranks[0]
    if first.phase is None:
        return "before its first event"
    return f"last seen in phase {first.phase.name} after {len(first.steps)} measured steps"
