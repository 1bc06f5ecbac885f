"""Accepted changes: which of them are about a series, from when a row's level holds, and which count for nothing.

One file may serve several suites and machines: a suite, a machine, a point and a metric that an entry leaves out are
all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pybench.core.provenance import HOST_FIELD
from pybench.model.figures import FigureKey, RunFigures, key_values
from pybench.model.text import abridged
from pybench.nightly.comparison import rows_of
from pybench.nightly.series import Series
from pybench.nightly.values import Accepted, HostShift

_MOST_NAMES = 3
"""Of points and GPUs, in a message."""


def about(series: Series, accepted: Sequence[Accepted]) -> tuple[Accepted, ...]:
    """Those of the series' suite, and of a machine that it was measured on."""
    return tuple(one for one in accepted if any(_is_about(one, run) for run in series.runs))


def accepted_on(row: FigureKey, accepted: Sequence[Accepted]) -> str:
    """Date from which a row's present level holds; empty where none was accepted."""
    return max((one.since for one in accepted if one.is_of(row)), default="")


def level_start(series: Series, row: FigureKey, accepted: Sequence[Accepted]) -> int:
    """First night of a row's present level."""
    since = accepted_on(row, accepted)
    return next((n for n, run in enumerate(series.runs) if run.created_utc[:10] >= since), len(series.runs) - 1)


def of_all_points(run: RunFigures, host: Sequence[HostShift]) -> Accepted:
    """What accepts all points of a run's suite on its machine, without a reason yet.

    It holds from the first night on which all that moved had moved: no level may begin earlier. Where no such night is
    known it is tonight.
    """
    since = max((shift.level_change.since for shift in host if shift.level_change), default=run.created_utc[:10])
    return Accepted(suite=run.suite, gpu=next(iter(_gpus(run)), None), since=since, reason="")


def unused(accepted: Sequence[Accepted], last: RunFigures, runs: Sequence[RunFigures]) -> Iterator[str]:
    """Accepted changes that do not count tonight, with the reason. ``runs`` are earlier ones, also of other suites."""
    for one in accepted:
        if not one.holds_on(last.created_utc):
            yield f"not accepted: {_name(one)}: its date, {one.since}, is after this run"
        elif reason := _why_nothing(one, last, (last, *runs)):
            yield f"not accepted: {_name(one)}: no run here {reason}"


def _why_nothing(one: Accepted, last: RunFigures, runs: Sequence[RunFigures]) -> str | None:
    """Why an entry is about no row of any run; ``None`` where it is about one."""
    if not any(one.suite in {None, run.suite} for run in runs):
        return f"is of such a suite; this one is of {last.suite}"
    own = [run for run in runs if _is_about(one, run)]
    if not own:
        of_suite = f"of {one.suite} " if one.suite is not None else ""
        return f"{of_suite}has such a GPU; this one has {abridged(_gpus(last), _MOST_NAMES) or 'none'}"
    if one.point is not None and not any(one.point == point.id for run in own for point in run.points):
        known = abridged([point.id for point in last.points], _MOST_NAMES)
        return f"has such a point; this one has {known or 'none'}"
    if one.metric is not None and not any(one.is_of(row) for run in own for row in rows_of(run)):
        return "has such a row"
    return None


def _is_about(one: Accepted, run: RunFigures) -> bool:
    return one.suite in {None, run.suite} and (one.gpu is None or one.gpu in _gpus(run))


def _gpus(run: RunFigures) -> tuple[str, ...]:
    """UUIDs of a run's GPUs, the leading host's first; none where they were not recorded."""
    names = key_values(run.keys, "gpu")
    for key in run.keys:
        others = key_values(run.keys, key) if key.startswith(HOST_FIELD) else ()
        names += [name for host in others if isinstance(host, dict) for name in key_values(host, "gpus")]
    return tuple(dict.fromkeys(name.rpartition(" ")[2] for name in names if isinstance(name, str)))


def _name(one: Accepted) -> str:
    if one.point is None:
        what = f"every point of {one.suite}" if one.metric is None else f"{one.metric} of every point of {one.suite}"
    else:
        what = one.point if one.metric is None else f"{one.point} {one.metric}"
    return what if one.gpu is None else f"{what} on {one.gpu}"
