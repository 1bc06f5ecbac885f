"""Forges a run's folder as somebody would who knows pybench: checksums and reports are made again after each change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pybench.core.plan import skipped
from pybench.evidence.values import Verification
from pybench.evidence.verify import verify_folder
from pybench.files.run.folder import RunFolder, attempt_name
from pybench.model.manifest import Manifest
from pybench.model.record import Record
from pybench.power.trace import PowerTrace
from pybench.power.trace_file import read_trace, write_trace
from pybench.report.formats import REPORT_FILES, render
from pybench.report.run.view import RunView


class Forgery:
    """A forgery of the run in ``path``, whose suite is two folders above it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.suite = path.parents[1] / "drill.toml"

    @property
    def folder(self) -> RunFolder:
        return RunFolder.open(self.path)

    @property
    def records(self) -> list[Record]:
        return list(self.folder.journal.records())

    def verified(self) -> Verification:
        """The findings of verify with the suite's file."""
        return verify_folder(self.path, self.suite)

    def report(self) -> None:
        """Write every report again from the journal."""
        view = RunView.of_folder(self.folder)
        for name, file in REPORT_FILES.items():
            self.folder.write_report(file, render(view, name))

    def journal(self, records: list[Record]) -> None:
        """Write other records, with their places and checksums."""
        (self.path / "journal.jsonl").unlink()
        folder = self.folder
        for record in records:
            folder.journal.append(record)
        self.report()

    def record(self, place: int, change: Callable[[Record], Record]) -> None:
        """Change one record."""
        records = self.records
        records[place] = change(records[place])
        self.journal(records)

    def manifest(self, change: Callable[[Manifest], Manifest]) -> None:
        """Change the manifest."""
        self.folder.write_manifest(change(self.folder.read_manifest()))
        self.report()

    def trace(self, place: int, change: Callable[[PowerTrace], PowerTrace]) -> None:
        """Change the trace of one record."""
        name = self.records[place].trace
        assert name is not None
        write_trace(change(read_trace(self.path, name)), self.path / name)
        self.report()

    def results(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change results.json alone."""
        file = self.path / "results.json"
        values = json.loads(file.read_text())
        change(values)
        file.write_text(json.dumps(values))

    def text(self, name: str, old: str, new: str) -> None:
        """Change text in a file alone."""
        text = (self.path / name).read_text()
        assert old in text
        (self.path / name).write_text(text.replace(old, new))


def copy_of(run: Path, folder: Path) -> Forgery:
    """A copy of a run and its suite to tamper with."""
    shutil.copytree(run.parents[1], folder, dirs_exist_ok=True)
    return Forgery(folder / "runs" / run.name)


def faster(record: Record) -> Record:
    """Every step of rank 0 takes half as long."""
    rank = record.ranks[0]
    steps = [replace(s, end_ns=(s.start_ns + s.end_ns) // 2, token_end_ns=(s.start_ns,) * 2) for s in rank.steps]
    return replace(record, ranks=(replace(rank, steps=tuple(steps)), *record.ranks[1:]))


def cheaper(record: Record) -> Record:
    """Every GPU used a tenth less."""
    assert record.energy is not None
    gpus = [replace(gpu, energy_j=0.9 * gpu.energy_j) for gpu in record.energy.gpus if gpu.energy_j is not None]
    return replace(record, energy=replace(record.energy, gpus=tuple(gpus)))


def unmeasured(
    forgery: Forgery, point_id: str, place: Literal["skips", "left_out"], reason: str, lacks: str | None = None
) -> None:
    """A point becomes one that was not measured, for a reason: its records and folders are removed."""
    manifest = forgery.folder.read_manifest()
    (point,) = (point for point in manifest.plan.points if point.id == point_id)
    points = tuple(point for point in manifest.plan.points if point.id != point_id)
    skips: dict[str, Any] = {place: (skipped(point, None, reason, lacks),)}
    plan = replace(manifest.plan, points=points, **skips)
    kept = [record for record in forgery.records if record.point_id != point_id]
    for record in forgery.records:
        if record.point_id == point_id:
            shutil.rmtree(forgery.path / "attempts" / attempt_name(point_id, record.attempt))
    forgery.folder.write_manifest(replace(manifest, plan=plan))
    forgery.journal(kept)
