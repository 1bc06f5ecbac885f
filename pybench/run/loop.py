"""The loop over attempts: what is owed, then what could still decide a verdict."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace

from pybench.core.assemble import assemble
from pybench.core.measurements import Measurements
from pybench.core.schedule import pending
from pybench.files.run.folder import RunFolder
from pybench.files.run.manifest_rules import require_planned
from pybench.machine.device_lock import locked_devices
from pybench.machine.disk import disk_error
from pybench.machine.gpu_processes import look_once
from pybench.machine.signals import signals_interrupt
from pybench.model.errors import MachineError
from pybench.model.manifest import Manifest
from pybench.model.progress import Progress
from pybench.model.record import Record
from pybench.model.results import Results
from pybench.model.verdict import Prediction
from pybench.run.engines.base import Launcher
from pybench.run.gpu_observation import is_foreign
from pybench.run.hosts.gathering import Gathering
from pybench.run.open_run import OpenRun, compiled_code, resume_remedy
from pybench.run.suite_plan import most_gpus
from pybench.run.time_budget import TimeBudget, expected_s

Predictor = Callable[[RunFolder, Manifest, Measurements], tuple[Prediction, ...]]


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run in its folder: planned, perhaps begun. Over several hosts this one leads the ``gathering``.

    ``predict`` gives the predictions that judge speedups without a row of a table; ``None`` for none. ``wait_s`` is how
    long another run on the same GPUs is waited for; ``None`` without end. ``is_new``: nothing was measured before.
    """

    folder: RunFolder
    manifest: Manifest
    launcher: Launcher
    gathering: Gathering | None = None
    predict: Predictor | None = None
    wait_s: float | None = None
    is_new: bool = False

    def results(self) -> Results:
        """Judge the records so far, and keep the predictions in the manifest."""
        manifest, measurements = self._predicted(self.folder.journal.records())
        if manifest.predictions != self.folder.read_manifest().predictions:
            self.folder.write_manifest(manifest)
        return assemble(manifest, measurements)

    def _predicted(self, records: Sequence[Record]) -> tuple[Manifest, Measurements]:
        measurements = Measurements.of(self.manifest.plan, records)
        if self.predict is None:
            return self.manifest, measurements
        predictions = self.predict(self.folder, self.manifest, measurements)
        return replace(self.manifest, predictions=predictions), measurements

    def finish(self, progress: Progress) -> Results:
        """Measure all that is owed, then what is undecided, and judge it.

        Raises ``KeyboardInterrupt`` on Ctrl-C, SIGTERM or SIGHUP, ``MachineError`` on a faulty disk or an engine that
        went down: workers are ended by then and everything measured is kept.
        """
        with (
            signals_interrupt(),
            self.devices(progress),
            self.held() as records,
            self.opened(records, progress, TimeBudget(self.manifest.options.time_limit_s)) as opened,
        ):
            indices = {gpu.uuid: gpu.index for gpu in self.manifest.machine.gpus}
            for process, facts in look_once(self.uuids()):
                if is_foreign(facts, self.folder.mark, None):
                    on_gpu = f"GPU {indices[process.uuid]}: process {process} is on it"
                    progress.note(f"{on_gpu}; beside it no scaling row passes")
            try:
                owed = pending(self.manifest.plan.points, records)
                takes_s = expected_s(self.folder, self.manifest, owed, records)
                points = self.manifest.plan.points
                progress.run_started(self.folder.run_id, str(self.folder.path), points, len(owed), takes_s)
                opened.measure_owed()
                opened.decide()
            finally:
                progress.finished()
        return self.results()

    @contextmanager
    def held(self) -> Iterator[list[Record]]:
        """Hold the run's folder, end workers of a killed runner; gives the records, complete on disk at the end."""
        path = self.folder.path
        with disk_error(path, *resume_remedy(path, self.launcher)), self.folder.lock():
            # A runner that was killed may have left workers that still hold GPUs.
            self.launcher.remove_leftovers(self.folder.mark)
            records = list(self.folder.journal.records())
            require_planned(path, self.manifest, records)
            yield records
            if records:
                self.folder.journal.require_complete()

    @contextmanager
    def opened(self, records: list[Record], progress: Progress, budget: TimeBudget) -> Iterator[OpenRun]:
        """To make attempts beside those in ``records``; the folder must be locked."""
        with closing(self.launcher), compiled_code() as compiled:
            run = self.folder, self.manifest, self.launcher, records, progress, budget
            yield OpenRun(*run, lambda so_far: assemble(*self._predicted(so_far)), self.gathering, compiled)

    @contextmanager
    def devices(self, progress: Progress, *beside: Run) -> Iterator[None]:
        """Hold every device of the run, once it is free. Raises ``MachineError``; new runs' folders go then."""
        owner = f"process {os.getpid()}, {self.folder.path}"
        with ExitStack() as held:
            try:
                held.enter_context(locked_devices(self.uuids(), owner, progress.note, self.wait_s))
            except MachineError:
                for run in (self, *beside):
                    if run.is_new:
                        shutil.rmtree(run.folder.path, ignore_errors=True)
                raise
            yield

    def uuids(self) -> tuple[str, ...]:
        """Every GPU that a point may run on."""
        most = most_gpus(self.manifest.plan)
        return tuple(gpu.uuid for gpu in self.manifest.machine.gpus[:most]) if self.manifest.device == "cuda" else ()
