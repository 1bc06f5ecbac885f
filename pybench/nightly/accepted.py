"""Accepted changes: the file that lists them, which of them are about a series, and which count for nothing.

``accepted.toml`` has an entry for each change, with its reason and its date. An entry names a point, or the suite of
which it accepts all points. A suite, a machine, a point and a metric that it leaves out are all of them.

::

    schema = 1

    [[accepted]]
    point = "decode[tensor_parallel=2]"
    metric = "output_tokens_per_s"   # left out: every metric of the point
    date = 2026-11-20                # first night of the new level
    reason = "vLLM 0.21 batches prefills separately; agreed in review"

    [[accepted]]
    suite = "tp_scaling"             # without a point: every point of the suite
    gpu = "GPU-739c0fb5-d7b3-5f86-545d-0c41f279dd44"   # of the machine; left out: on every machine
    date = 2026-11-22
    reason = "a new power supply"
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date as Date  # noqa: N812 - the key of the file is date
from pathlib import Path
from typing import Annotated

import tomli_w
from pydantic import BaseModel, Field

from pybench.core.provenance import HOST_FIELD
from pybench.files.toml_file import KeyProblem, did_you_mean, faults, message_of, read_toml
from pybench.model.figures import FigureKey, RunFigures, key_values
from pybench.model.text import abridged
from pybench.model.workloads.registry import METRICS
from pybench.nightly.comparison import rows_of
from pybench.nightly.history import Series
from pybench.nightly.values import Accepted, HostShift

_DEFAULT = Path("accepted.toml")
_Text = Annotated[str, Field(min_length=1, max_length=1000)]
_NEITHER = "names neither a point nor a suite; give `point`, or `suite` to accept all points of it"


class _Entry(BaseModel, strict=True, extra="forbid"):
    point: _Text | None = None
    metric: str | None = None
    suite: _Text | None = None
    gpu: _Text | None = None
    date: Date
    reason: _Text


class _File(BaseModel, strict=True, extra="forbid"):
    schema_version: Annotated[int, Field(ge=1, le=1, alias="schema")]
    accepted: Annotated[list[_Entry], Field(max_length=4096)] = []


def read_accepted(path: Path | None) -> tuple[Accepted, ...]:
    """Read the file, by default accepted.toml if it exists. Raises ``FileError`` with all its problems."""
    if path is None and not _DEFAULT.exists():
        return ()
    path = path or _DEFAULT
    document, check = read_toml(path, "a file of accepted changes")
    keys = [*_Entry.model_fields, "schema", "accepted"]
    check("schema", ((fault["loc"], message_of(fault, keys)) for fault in faults(_File, document)))
    entries, problems = _File.model_validate(document).accepted, list[KeyProblem]()
    for number, entry in enumerate(entries):
        if entry.point is None and entry.suite is None:
            problems.append((("accepted", number), _NEITHER))
        if entry.metric is not None and entry.metric not in METRICS:
            message = f"{entry.metric!r} is no metric{did_you_mean(entry.metric, METRICS)}"
            problems.append((("accepted", number, "metric"), message))
    check("rule", problems)
    return tuple(Accepted(since=entry.date.isoformat(), **entry.model_dump(exclude={"date"})) for entry in entries)


def entry_text(entry: Accepted) -> str:
    """An entry as the file has it. One without a reason is refused by the reader until somebody writes it."""
    values = {name: getattr(entry, name) for name in ("suite", "point", "metric", "gpu")}
    values |= {"date": Date.fromisoformat(entry.since), "reason": entry.reason}
    # Of a whole document short tables would be written in one line.
    return f"[[accepted]]\n{tomli_w.dumps({name: value for name, value in values.items() if value is not None})}"


_MOST_NAMES = 3
"""Of points and GPUs, in a message."""


def about(series: Series, accepted: Sequence[Accepted]) -> tuple[Accepted, ...]:
    """Accepted changes of the series' suite and of a machine in the series."""
    return tuple(entry for entry in accepted if any(_is_about(entry, run) for run in series.runs))


def accepted_on(row: FigureKey, accepted: Sequence[Accepted]) -> str:
    """Date from which a row's present level holds; empty where none was accepted."""
    return max((entry.since for entry in accepted if entry.is_of(row)), default="")


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
    for entry in accepted:
        if not entry.holds_on(last.created_utc):
            yield f"not accepted: {_name(entry)}: its date, {entry.since}, is after this run"
        elif reason := _why_nothing(entry, last, (last, *runs)):
            yield f"not accepted: {_name(entry)}: no run here {reason}"


def _why_nothing(entry: Accepted, last: RunFigures, runs: Sequence[RunFigures]) -> str | None:
    """Why an entry is about no row of any run; ``None`` where it is about one."""
    if not any(entry.suite in {None, run.suite} for run in runs):
        return f"is of such a suite; this one is of {last.suite}"
    matches = [run for run in runs if _is_about(entry, run)]
    if not matches:
        of_suite = f"of {entry.suite} " if entry.suite is not None else ""
        return f"{of_suite}has such a GPU; this one has {abridged(_gpus(last), _MOST_NAMES) or 'none'}"
    if entry.point is not None and not any(entry.point == point.id for run in matches for point in run.points):
        known = abridged([point.id for point in last.points], _MOST_NAMES)
        return f"has such a point; this one has {known or 'none'}"
    if entry.metric is not None and not any(entry.is_of(row) for run in matches for row in rows_of(run)):
        return "has such a row"
    return None


def _is_about(entry: Accepted, run: RunFigures) -> bool:
    return entry.suite in {None, run.suite} and (entry.gpu is None or entry.gpu in _gpus(run))


def _gpus(run: RunFigures) -> tuple[str, ...]:
    """UUIDs of a run's GPUs, the leading host's first; none where they were not recorded."""
    names = key_values(run.keys, "gpu")
    for key in run.keys:
        others = key_values(run.keys, key) if key.startswith(HOST_FIELD) else ()
        names += [name for host in others if isinstance(host, dict) for name in key_values(host, "gpus")]
    return tuple(dict.fromkeys(name.rpartition(" ")[2] for name in names if isinstance(name, str)))


def _name(entry: Accepted) -> str:
    what = f"every point of {entry.suite}" if entry.point is None else entry.point
    if entry.metric is not None:
        what = f"{entry.metric} of {what}" if entry.point is None else f"{what} {entry.metric}"
    return what if entry.gpu is None else f"{what} on {entry.gpu}"
