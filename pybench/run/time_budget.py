"""A run's time limit: the attempts that still fit, by earlier durations, and its end."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from statistics import median

from pybench.core.provenance import fingerprint, run_fields
from pybench.core.schedule import Attempt
from pybench.files.run.folder import RunFolder, earlier_runs
from pybench.files.shipped import load_durations
from pybench.model.errors import RunFolderError
from pybench.model.machine import Host, Machine
from pybench.model.manifest import Manifest, time_limit_text
from pybench.model.record import Record
from pybench.model.suite import Plan, Suite
from pybench.model.text import plural
from pybench.model.workloads.settings import NodeSettings

_MOST_NAMED = 3


class OutOfTimeError(Exception):
    """The run's time was over while an attempt ran; the worker is ended, and nothing of the attempt is kept."""


class TimeBudget:
    """``limit_s`` from now on for all attempts, ``None`` without end; ``end_s`` is in ``time.monotonic``."""

    def __init__(self, limit_s: float | None) -> None:
        self.end_s = math.inf if limit_s is None else time.monotonic() + limit_s
        self.is_limited = limit_s is not None
        self.limit = "" if limit_s is None else time_limit_text(limit_s)

    @property
    def end_ns(self) -> int | None:
        """The end in nanoseconds of CLOCK_MONOTONIC, ``None`` where there is none."""
        return int(self.end_s * 1e9) if self.is_limited else None

    @property
    def left_s(self) -> float:
        """Seconds until its end."""
        return self.end_s - time.monotonic()

    def left_out_note(self, attempts: Sequence[Attempt]) -> str:
        """A sentence that counts attempts which are not made, and names their points where they are few."""
        many = Counter(point.id for point, _ in attempts)
        verb = "is" if len(attempts) == 1 else "are"
        counted = f"{self.limit}: {plural(len(attempts), 'attempt')} {verb} not made"
        if len(many) > _MOST_NAMED:
            return f"{counted}, at {len(many)} points"
        return f"{counted}: {', '.join(f'{count} of {name}' for name, count in many.items())}"


_MOST_RUNS = 20
"""Folders of other runs that are looked at, the newest first."""


def expected_s(folder: RunFolder, manifest: Manifest, owed: Sequence[Attempt], own: Sequence[Record]) -> float | None:
    """Seconds that ``owed`` will take; ``None`` where one of the points was never measured on this machine."""
    known = durations_s(folder, manifest, owed, own)
    seconds = [known[point.digest] for point, _ in owed if point.digest in known]
    return sum(seconds) if seconds and len(seconds) == len(owed) else None


def durations_s(
    folder: RunFolder, manifest: Manifest, owed: Sequence[Attempt], own: Sequence[Record]
) -> dict[str, float]:
    """Seconds of an attempt by the digest of its point, of those of ``owed`` that were measured here before."""
    known = attempts_s(own)
    wanted = {point.digest for point, _ in owed} - known.keys()
    root = folder.path.parent
    return {**earlier_attempts_s(root, manifest.suite.name, manifest.fingerprint, wanted, folder.path), **known}


def earlier_times_s(
    suite: Suite, plan: Plan, machine: Machine, root: Path, hosts: Sequence[Host] = ()
) -> dict[str, float]:
    """Seconds of an attempt by the digest of its point, of those that runs below ``root`` measured on these hosts."""
    digests = {point.digest for point in plan.points}
    return earlier_attempts_s(root, suite.name, fingerprint(run_fields(machine, hosts)), digests)


def earlier_attempts_s(
    root: Path, suite: str, machine: str, wanted: AbstractSet[str], own: Path | None = None
) -> dict[str, float]:
    """Seconds of an attempt at the points of the digests ``wanted``, each by the latest run of the suite here."""
    found: dict[str, float] = {}
    for run, _ in earlier_runs(root, machine, most=_MOST_RUNS, suite=suite, own=own) if wanted else ():
        with suppress(RunFolderError, OSError):
            found = {**attempts_s(run.journal.records()), **found}
        if wanted <= found.keys():
            break
    return {digest: value for digest, value in found.items() if digest in wanted}


def kept_attempts_s(suite: str, plan: Plan, machine: Machine) -> dict[str, float]:
    """Seconds of an attempt by the digest of its point, by kept runs of the same kind and number of GPUs.

    Times are of the shipped suite; node points in a suite of models have the time of ``node_check``.
    """
    known = load_durations().get(machine.kind, {}).get(str(len(machine.gpus)), {})
    of_node = [isinstance(point.settings, NodeSettings) for point in plan.points]
    names = [suite if all(of_node) or not is_node else "node_check" for is_node in of_node]
    return {p.digest: known[name] for p, name in zip(plan.points, names, strict=True) if name in known}


def attempts_s(records: Sequence[Record]) -> dict[str, float]:
    """Median seconds of a good attempt by the digest of its point."""
    found: dict[str, list[float]] = {}
    for record in records:
        if record.ok:
            found.setdefault(record.point_digest, []).append(record.duration_s)
    return {digest: median(values) for digest, values in found.items()}
