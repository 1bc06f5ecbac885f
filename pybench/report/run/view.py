"""A run for the report formats: its results and, with its folder, its manifest and records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pybench.core.assemble import assemble
from pybench.core.measurements import Measurements
from pybench.files.run.folder import RunFolder, is_written
from pybench.files.run.manifest_rules import require_planned
from pybench.files.run.results_file import read_results
from pybench.model.errors import UsageError
from pybench.model.host import HostPart
from pybench.model.manifest import Manifest
from pybench.model.record import Record
from pybench.model.results import Results
from pybench.model.text import plural
from pybench.power.trace import PowerTrace
from pybench.power.trace_file import read_trace


@dataclass(frozen=True, kw_only=True)
class RunView:
    """One run for the report formats. ``manifest`` is ``None`` and ``records`` are empty for results without a folder.

    Traces are large, so each is read when it is needed, and not kept.
    """

    results: Results
    manifest: Manifest | None = None
    records: tuple[Record, ...] = ()
    path: Path | None = None

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
        """What decided the verdict, with the verdict so far of a run that owes attempts."""
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

    def require_attempts(self, name: str) -> None:
        """Refuse results without a folder for the format ``name``. Raises ``UsageError``."""
        if self.manifest is None:
            raise UsageError(
                f"{self.results.run_id}: --format {name} needs the run's folder; "
                "its attempts and traces are not in results.json"
            )

    def trace(self, file: str | None) -> PowerTrace | None:
        """A power trace by its path in the run's folder, as a record or its part of a host names it.

        ``None`` where none was recorded. Raises ``RunFolderError`` on damage.
        """
        return None if self.path is None or file is None else read_trace(self.path, file)

    def other_hosts(self, record: Record) -> tuple[HostPart, ...]:
        """The other hosts of an attempt, each with its own trace and clock."""
        return tuple(part for part in record.hosts if part.trace not in {None, record.trace})
