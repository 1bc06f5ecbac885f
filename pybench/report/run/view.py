"""A run for the report formats: its results, with its folder its manifest and records, and its provenance in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pybench.core.assemble import assemble
from pybench.core.measurements import Measurements
from pybench.files.run.folder import RunFolder, is_written
from pybench.files.run.manifest_rules import require_planned
from pybench.files.run.results_file import read_results
from pybench.model.machine import HostPart
from pybench.model.manifest import Containment, Manifest, Provenance
from pybench.model.record import Record
from pybench.model.results import Results
from pybench.model.text import counted, listed, plural

if TYPE_CHECKING:
    from pybench.power.trace import PowerTrace


@dataclass(frozen=True, kw_only=True)
class RunView:
    """One run for the report formats. ``manifest`` is ``None`` and ``records`` are empty for results without a folder.

    Traces are large, so each is read when it is needed, and not kept. ``is_resumed_below``: the command that finishes
    the run follows the report, which does not name it.
    """

    results: Results
    manifest: Manifest | None = None
    records: tuple[Record, ...] = ()
    path: Path | None = None
    is_resumed_below: bool = False

    @classmethod
    def of_folder(cls, folder: RunFolder, results: Results | None = None) -> RunView:
        """Read a run's folder; ``results`` where they are known already. Raises ``RunFolderError``."""
        manifest, records = folder.read_manifest(), folder.journal.records()
        require_planned(folder.path, manifest, records)
        judged = assemble(manifest, Measurements.of(manifest.plan, records)) if results is None else results
        return cls(results=judged, manifest=manifest, records=records, path=folder.path)

    @classmethod
    def of_file(cls, path: Path) -> RunView:
        """Read a ``results.json`` without its run's folder. Raises ``RunFolderError``."""
        return cls(results=read_results(path))

    @property
    def state(self) -> str:
        """The verdict; ``running`` or ``interrupted`` of a run that owes attempts."""
        if not self.results.num_owed:
            return self.results.verdict
        return "running" if self.path is not None and is_written(self.path) else "interrupted"

    @property
    def reason(self) -> str:
        """The reason of the verdict; of an unfinished run also the verdict so far."""
        results = self.results
        if not results.num_owed:
            return results.reason
        made = sum(point.attempts for point in results.points)
        so_far = "" if results.verdict == "missing" else f"; so far {results.verdict}: {results.reason}"
        return f"{made} of {plural(made + results.num_owed, 'attempt')} made{so_far}"

    @property
    def good_records(self) -> tuple[Record, ...]:
        """Records of attempts that measured a point of the plan to its end."""
        if self.manifest is None:
            return ()
        return tuple(record for record in Measurements.of(self.manifest.plan, self.records).records if record.ok)

    def trace(self, file: str | None) -> PowerTrace | None:
        """A power trace by its path in the run's folder, as a record or its part of a host names it.

        ``None`` where none was recorded. Raises ``RunFolderError`` on damage.
        """
        if self.path is None or file is None:
            return None
        from pybench.power.trace_file import read_trace  # noqa: PLC0415 - results without traces need no pybench.power

        return read_trace(self.path, file)

    def other_hosts(self, record: Record) -> tuple[HostPart, ...]:
        """The other hosts of an attempt, each with its own trace and clock."""
        return tuple(part for part in record.hosts if part.trace not in {None, record.trace})


def sentence(provenance: Provenance, *, detail: bool = True, where: str = "-v lists") -> str:
    """For instance ``2026-11-21T08:29:31+00:00, pybench 0.1.0, 4 x NVIDIA H200, driver 580.159.04, torch 2.11.0``.

    Tuning variables are listed with ``detail``, else counted; ``where`` names their place then.
    """
    environment = [f"{name}={value}" for name, value in (provenance.environment or {}).items()]
    if environment and not detail:
        environment = [f"{plural(len(environment), 'tuning variable')} set ({where})"]
    bound_s = provenance.clock_bound_s
    joined = "" if bound_s is None else f" (clocks joined to {bound_s * 1000:.2g} ms)"
    hosts = [f"on each of the hosts {listed(provenance.hosts)}{joined}"] if provenance.hosts else []
    # The host's driver, and what workers saw differently.
    seen, host = provenance.worker_driver, provenance.driver
    other = f" (workers saw {seen})" if seen and host and seen != host else ""
    newer = " with forward compatibility" if provenance.forward_compatible else ""
    driver = f"driver {host or seen}{other}{newer}" if host or seen else ""
    parts = [
        provenance.created_utc,
        f"pybench {provenance.pybench_version}",
        counted(provenance.gpu_names) or provenance.cpu_model or "unknown CPU",
        *hosts,
        *([driver] if driver else []),
        *(f"{name} {version}" for name, version in provenance.packages.items()),
        _containment(provenance.containment) if provenance.containment else "not containerised",
        *environment,
    ]
    return ", ".join(parts)


def changes(options: Sequence[str]) -> str:
    """Changes by the command line, ``changed by --set batch_size=1 --attempts 5``; empty without any."""
    return f"changed by {' '.join(options)}" if options else ""


def _containment(containment: Containment) -> str:
    """Engine, images and what was loosened."""
    engine = " ".join(part for part in (containment.engine, containment.engine_version) if part)
    unpinned = "" if containment.pinned else "unpinned "
    loosened = f" with looser {', '.join(containment.relaxations)}" if containment.relaxations else ""
    return f"in {engine}{loosened}, {unpinned}image {', '.join(containment.images)}"
