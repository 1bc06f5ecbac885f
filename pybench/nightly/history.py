"""Runs by time: a folder of them, read anew each time, and those that a run may be judged with.

An entry of the folder is a run's folder, a folder with a ``results.json`` (as CI keeps it), or a file ``NAME.json``.
Links are not followed.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from pybench.core.keys import BUILD, differing, point_difference, run_figures
from pybench.core.statistics.interval import as_fraction
from pybench.core.statistics.spread import robust_sd
from pybench.files.reader import utc_time
from pybench.files.run.folder import RunFolder
from pybench.files.run.journal import DEFECTS
from pybench.files.run.results_file import results_of
from pybench.model.errors import PybenchError, RunFolderError
from pybench.model.figures import FigureKey, PointFigures, RunFigures
from pybench.model.manifest import MANIFEST_FILE, Manifest
from pybench.model.results import RESULTS_FILE
from pybench.model.workloads.registry import METRICS
from pybench.nightly.comparison import rows_of

_MAX_REASON = 300
_OLD_INDEX = "index.jsonl"
"""Earlier builds kept figures in this file of the folder; it is ignored."""


@dataclass(frozen=True, kw_only=True)
class History:
    """Runs by time, the oldest first. ``skipped`` are the entries that are no run, each with its reason.

    ``entries`` has the place of each run in the folder, by its identity.
    """

    folder: Path
    runs: tuple[RunFigures, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    entries: Mapping[tuple[str, ...], str] = field(default_factory=dict)

    def path(self, run: RunFigures) -> Path:
        """Where a run of the history is."""
        return self.folder / self.entries[run.identity]

    def manifest(self, run: RunFigures | None) -> Manifest | None:
        """Manifest of a run, where its folder is kept, and this user wrote it: it names images to run."""
        if run is not None:
            with suppress(RunFolderError):
                folder = RunFolder.open(self.path(run))
                folder.require_owner()
                return folder.read_manifest()
        return None


def read_history(folder: Path) -> History:
    """Read every run of a folder. Raises ``RunFolderError`` where the folder cannot be read."""
    try:
        folder = folder.resolve()
        with os.scandir(folder) as entries:
            names = sorted(e.name for e in entries if not e.name.startswith(".") and e.name != _OLD_INDEX)
    except OSError as error:
        raise RunFolderError(f"{folder}: cannot read the history: {error.strerror}; give a folder of runs") from error
    runs: dict[tuple[str, ...], RunFigures] = {}
    places: dict[tuple[str, ...], str] = {}
    skipped: list[tuple[str, str]] = []
    for name in names:
        run = _read_entry(folder, name)
        if isinstance(run, RunFigures) and run.identity in runs:
            run = f"the same run as another entry, {run.run_id}"
        if isinstance(run, RunFigures):
            runs[run.identity], places[run.identity] = run, name
        elif run is not None:
            # An error of a file begins with its path, which the name already is.
            reason = run.removeprefix(str(folder / name)).lstrip("/: ")[:_MAX_REASON]
            skipped.append((name.encode(errors="backslashreplace").decode(), reason))
    ordered = sorted(runs.values(), key=lambda run: (run.created_utc, run.run_id))
    return History(folder=folder, runs=tuple(ordered), skipped=tuple(skipped), entries=places)


_SETTINGS: dict[str, dict[str, Any]] = {}
"""Settings of each point that was read, by its digest."""


def _read_entry(folder: Path, name: str) -> RunFigures | str | None:
    """The run of an entry, or the reason why it has none; ``None`` for an entry that is not about runs."""
    path = folder / name
    if path.is_symlink():
        return "a link; copy the run into the folder instead"
    if not _is_run(path):
        try:
            with os.scandir(path) as entries:
                holds_runs = any(_is_run(path / entry.name) for entry in entries if not entry.is_symlink())
        except OSError:
            holds_runs = False
        return "a folder of runs, which are not looked for in it; give that folder" if holds_runs else None
    if name != name.encode(errors="replace").decode():
        return "its name is not UTF-8; give it another one"
    return _read_run(path)


def _is_run(path: Path) -> bool:
    if not path.is_dir():
        return path.suffix == ".json"
    return any(os.path.lexists(path / file) for file in (MANIFEST_FILE, RESULTS_FILE))


def _read_run(path: Path) -> RunFigures | str:
    """A folder may hold anything: whatever fails is a reason."""
    is_kept = path.is_dir() and not os.path.lexists(path / MANIFEST_FILE)
    try:
        run = run_figures(results_of(path / RESULTS_FILE if is_kept else path))
    except PybenchError as error:
        return str(error)
    except (*DEFECTS, MemoryError) as error:
        return f"cannot be judged: {type(error).__name__}: {error}"
    try:
        when = utc_time(run.created_utc).isoformat(timespec="seconds")
    except ValueError as error:
        return f"its time {error}"
    # Nights share the settings of a point, which its digest identifies.
    points = (
        p if p.digest is None else replace(p, settings=_SETTINGS.setdefault(p.digest, p.settings)) for p in run.points
    )
    return replace(run, created_utc=when, points=tuple(points))


MIN_FOR_SPREAD = 3
_BROKEN = frozenset(("fail", "missing", "error"))


@dataclass(frozen=True)
class Series:
    """Runs that agree in every key, the oldest first; the last one is the run that is looked at.

    ``apart`` counts the runs that were left out, by the key that differs, most first; ``broken`` names those whose
    verdict was bad; ``num_later`` are later than the last.
    """

    runs: tuple[RunFigures, ...]
    across: tuple[str, ...] = ()
    apart: Mapping[str, int] = field(default_factory=dict)
    broken: tuple[str, ...] = ()
    num_later: int = 0

    @property
    def last(self) -> RunFigures:
        """The run that is looked at."""
        return self.runs[-1]

    @property
    def has_earlier(self) -> bool:
        """Whether any run is earlier, also one that was left out."""
        return len(self.runs) > 1 or bool(self.apart or self.broken)

    @cached_property
    def rows(self) -> tuple[FigureKey, ...]:
        """Rows that any run has, those of the last run first."""
        return tuple(dict.fromkeys(row for run in reversed(self.runs) for row in rows_of(run)))

    @cached_property
    def _points(self) -> tuple[dict[str, PointFigures], ...]:
        return tuple({point.id: point for point in run.points} for run in self.runs)

    def points(self, point_id: str) -> tuple[PointFigures | None, ...]:
        """One point in every run; ``None`` where it is absent, or was measured otherwise than in the last."""
        last = self._points[-1].get(point_id)
        points = (by_id.get(point_id) for by_id in self._points)
        if last is None or last.digest is None:  # the row vanished, or its point was skipped and has no settings
            return tuple(points)
        return tuple(p if p and point_difference(p, last, self.across) is None else None for p in points)

    def values(self, row: FigureKey) -> tuple[float | None, ...]:
        """The median of each run's attempts; ``None`` where it was not measured, or earlier beside other processes."""
        *before, last = self.points(row.point_id)
        return (
            *(_value(point, row.metric) if point and point.is_alone else None for point in before),
            _value(last, row.metric),
        )

    def attempts(self, row: FigureKey) -> tuple[tuple[float, ...], ...]:
        """Logarithms of the medians of each run's attempts, as :func:`attempts_of` has them."""
        return tuple(attempts_of(point, row.metric) if point else () for point in self.points(row.point_id))

    def builds(self, since: str) -> str:
        """The build of the workers before the date ``since`` and tonight, where they differ; else empty."""
        before = [run for run in self.runs[:-1] if run.created_utc[:10] < since]
        then, now = before[-1].keys.get(BUILD) if before else None, self.last.keys.get(BUILD)
        return "" if None in {then, now} or then == now else f"workers of build {then} -> {now}"

    def otherwise(self, row: FigureKey) -> str | None:
        """How the newest earlier run that has the row measured it otherwise than the last; ``None`` without any."""
        last = self._points[-1][row.point_id]
        earlier = (by_id.get(row.point_id) for by_id in reversed(self._points[:-1]))
        texts = (point_difference(p, last, self.across) for p in earlier if p and row.metric in p.medians)
        return next((text for text in texts if text), None)


def nights(runs: Iterable[RunFigures]) -> tuple[RunFigures, ...]:
    """The runs without those of ``--ab`` and ``--aa``, which share an hour."""
    return tuple(run for run in runs if run.part_of is None)


def series_of(runs: Sequence[RunFigures], last: RunFigures, across: Collection[str] = ()) -> Series:
    """The runs before ``last`` that agree with it, and itself. A run whose verdict was bad is no example.

    Where ``last`` measured nothing, so that its software is not known, the newest run that may be like it stands in.
    """
    others = [run for run in runs if run.suite == last.suite and run.identity != last.identity]
    # Another machine may have begun a run of the same id at the same time.
    before = [run for run in others if _order(run) <= _order(last)]
    num_later = len(others) - len(before)
    like = last
    if not last.is_measured:
        measured = (run for run in before if run.is_measured and not differing(run, last, across))
        like = max(measured, key=_order, default=last)
    apart: Counter[str] = Counter()
    same: list[RunFigures] = []
    broken: list[str] = []
    for run in before:
        if texts := differing(run, like, across):
            apart.update(dict.fromkeys(texts, 1))
        elif run.verdict in _BROKEN:
            broken.append(run.run_id)
        else:
            same.append(run)
    return Series((*sorted(same, key=_order), last), tuple(across), dict(apart.most_common()), tuple(broken), num_later)


def _order(run: RunFigures) -> tuple[str, str]:
    return run.created_utc, run.run_id


def attempts_of(point: PointFigures, metric: str) -> tuple[float, ...]:
    """Logarithms of a point's attempts, higher is better; empty if an attempt is not positive."""
    medians, sign = point.medians.get(metric, ()), METRICS[metric].sign
    return tuple(sign * math.log(value) for value in medians) if all(value > 0 for value in medians) else ()


def _value(point: PointFigures | None, metric: str) -> float | None:
    """One bad attempt of three leaves a median as it is."""
    if point is None or not (medians := point.medians.get(metric)):
        return None
    value = median(medians)
    return value if math.isfinite(value) else None


@dataclass(frozen=True, kw_only=True)
class Trend:
    """A row's value in each run, the oldest first, ``None`` where it was not measured.

    ``fraction`` is the last value over the median of those before it, less 1; ``spread_fraction`` the robust standard
    deviation between the nights before it, ``None`` with fewer than three.
    """

    row: FigureKey
    values: tuple[float | None, ...]
    fraction: float | None
    spread_fraction: float | None


def trends(series: Series) -> Iterator[Trend]:
    """The trend of every row."""
    for row in series.rows:
        *before, last = values = series.values(row)
        earlier = [math.log(value) for value in before if value is not None and value > 0]
        fraction = as_fraction(math.log(last) - median(earlier)) if earlier and last and last > 0 else None
        spread_fraction = robust_sd(earlier) if len(earlier) >= MIN_FOR_SPREAD else None
        yield Trend(row=row, values=values, fraction=fraction, spread_fraction=spread_fraction)
