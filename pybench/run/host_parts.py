"""An attempt's hosts in its record, by their reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pybench.files.safe_folder import opened_folder, write_file
from pybench.model.errors import RunFolderError
from pybench.model.health import Health
from pybench.model.host import HostPart
from pybench.power.measured_window import HostTrace
from pybench.power.trace import PowerTrace
from pybench.power.trace_file import read_trace
from pybench.run.hosts.worker import HostReport
from pybench.run.session import Session


def host_parts(
    session: Session, folder: Path, reports: Sequence[HostReport], own_trace: str | None
) -> tuple[HostPart, ...]:
    """A part for every place of the session's job; the traces of other hosts are written below ``folder``."""
    by_name = {report.name: report for report in reports}
    each = session.job.ranks_each
    parts = []
    for number, place in enumerate(session.job.places):
        report = by_name.get(place.host)
        trace, reason = own_trace, session.power_reason
        if report is not None:
            trace, reason = _written(session.run_path, folder, report)
        part = HostPart(
            name=place.host,
            ranks=(number * each, each),
            clock=session.sites[number].joined if report is None else report.clock,
            gpu_uuids=place.gpu_uuids,
            trace=trace,
            power_reason=None if trace else reason or "no GPU takes part",
        )
        parts.append(part)
    return tuple(parts)


def _written(run_path: Path, folder: Path, report: HostReport) -> tuple[str | None, str | None]:
    """Path of a host's trace below the run's folder, or why there is none."""
    if not report.trace:
        return None, report.power_reason
    name = f"trace.{report.name}.npz"
    with opened_folder(folder) as opened:
        write_file(opened, name, report.trace)
    path = str((folder / name).relative_to(run_path))
    try:
        read_trace(run_path, path)
    except RunFolderError as error:
        return None, str(error)
    return path, None


def joined_parts(run_path: Path, parts: Sequence[HostPart], own: PowerTrace | None) -> tuple[HostTrace, ...]:
    """The power of every host, read back from the run's folder where it is not this one's ``own``.

    Without parts, the attempt was this host's alone. Raises ``RunFolderError``.
    """
    if not parts:
        return (HostTrace((), own),)
    joined = []
    for part in parts:
        here = own is not None and part.trace is not None and Path(part.trace).name == "trace.npz"
        trace = own if here else None if part.trace is None else read_trace(run_path, part.trace)
        joined.append(HostTrace(part.gpu_uuids, trace, part.clock, here=here))
    return tuple(joined)


def all_health(own: Health | None, reports: Sequence[HostReport]) -> Health | None:
    """The drivers' counts of all hosts together."""
    known = [health for health in (own, *(report.health for report in reports)) if health is not None]
    if len(known) <= 1:
        return known[0] if known else None
    logs = [health.xids for health in known if health.xids is not None]
    return Health(
        before=tuple(one for health in known for one in health.before),
        after=tuple(one for health in known for one in health.after),
        links=tuple(one for health in known for one in health.links),
        xids=tuple(xid for log in logs for xid in log) if len(logs) == len(known) else None,
        others=tuple(one for health in known for one in health.others),
    )
