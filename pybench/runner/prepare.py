"""From a suite file to a run folder that is ready to measure, or to an old one that can go on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from pybench.compute.axis_words import with_words
from pybench.compute.effort_override import with_effort
from pybench.compute.fingerprint import fingerprint, machine_fields
from pybench.compute.plan import expand
from pybench.compute.point_filter import parse_filter
from pybench.compute.required import parse_required
from pybench.compute.time_budget import within
from pybench.engines.base import Launcher
from pybench.engines.environment import recorded
from pybench.engines.requirements import LaunchRequirements
from pybench.engines.stage import installed_digest, stage_worker, worker_digest
from pybench.machine.disk import disk_error
from pybench.machine.environment import snapshot
from pybench.machine.power_recorder import sampler_unavailable_reason
from pybench.model.container import ContainerSetup
from pybench.model.errors import MachineError, RunFolderError, UsageError, is_machine_fault
from pybench.model.machine import Machine
from pybench.model.manifest import Manifest
from pybench.model.path_text import path_text
from pybench.model.plan_options import PlanOptions
from pybench.model.suite import DeviceKind, Plan, Suite, table_of
from pybench.runner.backend_packages import with_packages
from pybench.runner.expected_time import earlier_attempts_s
from pybench.runner.resume_check import check_machine, check_options, check_software
from pybench.runner.run import Run
from pybench.store.expected_tables import load_tables
from pybench.store.journal import RunFolder
from pybench.store.model_shapes import load_models
from pybench.store.shipped import find_suite
from pybench.store.suite.file import read_suite

_NO_OPTIONS = PlanOptions()


def earlier_times_s(suite: Suite, plan: Plan, machine: Machine, root: Path) -> dict[str, float]:
    """Seconds of an attempt by the digest of its point, of those that runs below ``root`` measured on this machine."""
    return earlier_attempts_s(root, suite.name, fingerprint(machine_fields(machine)), _digests(plan))


def plan_suite(
    path: Path, machine: Machine, options: PlanOptions = _NO_OPTIONS, root: Path | None = None
) -> tuple[Suite, Plan]:
    """Read the suite at ``path``, or the shipped one of that name, and expand it for ``machine``.

    Runs below ``root`` show how long attempts take, which a time limit needs. Raises ``FileError`` or ``UsageError``.
    """
    device, num_devices = _devices(machine)
    read = read_suite(find_suite(path), profile=options.profile, machine_kind=machine.kind, settings=options.settings)
    efforts = with_effort(read, attempts=options.attempts, steps=options.steps)
    suite = with_words(efforts, num_devices=num_devices, max_gpus=options.max_gpus)
    plan = expand(
        suite,
        load_models(),
        device=device,
        num_devices=num_devices,
        max_gpus=options.max_gpus,
        keep=parse_filter(options.keep) if options.keep is not None else lambda _point_id: True,
        required=parse_required(options.require),
    )
    if not (plan.points or plan.skips or plan.left_out):
        raise UsageError(f"-k {options.keep!r} keeps no point of {path}; `pybench plan {path}` lists them")
    if options.time_limit_s is not None and root is not None:
        plan = within(plan, earlier_times_s(suite, plan, machine, root), options.time_limit_s)
    return suite, plan


def _digests(plan: Plan) -> set[str]:
    return {point.digest for point in plan.points}


def prepare_run(
    path: Path,
    root: Path,
    choose: Callable[[LaunchRequirements], Launcher],
    options: PlanOptions = _NO_OPTIONS,
) -> Run:
    """Check everything that can be checked before the first attempt, then make the run's folder.

    ``choose`` gives the launcher, once it is known what has to run.
    """
    machine = snapshot()
    suite, plan = plan_suite(path, machine, options, root)
    names = {name for b in suite.benchmarks for e in b.expectations if (name := table_of(e)) is not None}
    tables = load_tables(Path(suite.path), sorted(names))
    launcher = choose(launch_requirements(suite, plan, machine))
    must = {benchmark.name for benchmark in suite.benchmarks if benchmark.required}
    plan = with_packages(plan, launcher, parse_required(options.require), must)
    with _new_folder(root, suite.name) as folder:
        stage_worker(folder.worker)
        manifest = Manifest(
            run_id=folder.run_id,
            created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
            pybench_version=version("pybench"),
            suite=replace(suite, path=path_text(suite.path)),
            plan=plan,
            device=_devices(machine)[0],
            machine=machine,
            fingerprint=fingerprint(machine_fields(machine)),
            tables=tables,
            worker_sha256=worker_digest(folder.worker),
            engine=launcher.name,
            options=options,
            power_reason=sampler_unavailable_reason(),
            container=launcher.container,
            environment=recorded(launcher.tuning(os.environ), launcher.secrets),
            software=launcher.software(),
        )
        folder.write_manifest(manifest)
    return Run(folder=folder, manifest=manifest, launcher=launcher)


def resume_run(path: Path, choose: Callable[[LaunchRequirements], Launcher], given: PlanOptions = _NO_OPTIONS) -> Run:
    """Open a run that was interrupted.

    Raises ``RunFolderError`` or ``MachineError`` when it can't go on here, ``UsageError`` where one of the ``given``
    options is not what the run began with.
    """
    folder = RunFolder.open(path)
    folder.require_owner()
    manifest = folder.read_manifest()
    check_options(path, manifest.options, given)
    machine = snapshot()
    check_machine(path, manifest, machine)
    _check_worker(folder, manifest)
    needs = launch_requirements(manifest.suite, manifest.plan, manifest.machine)
    launcher = choose(replace(needs, engine=manifest.engine, began=manifest.container))
    began, found = _images(manifest.container), _images(launcher.container)
    if began != found:
        raise MachineError(
            f"{path}: began with {began or 'no image'}, would go on with {found or 'none'}; start a new run"
        )
    check_software(path, manifest, launcher.software(), recorded(launcher.tuning(os.environ), launcher.secrets))
    return Run(folder=folder, manifest=manifest, launcher=launcher)


def _check_worker(folder: RunFolder, manifest: Manifest) -> None:
    """Only the worker of this very installation runs, and only one that half of the run was measured with."""
    try:
        staged = worker_digest(folder.worker)
    except OSError as error:
        if is_machine_fault(error):
            raise
        raise RunFolderError(f"{folder.worker}: cannot read the worker's source: {error.strerror}") from error
    if staged != manifest.worker_sha256:
        raise RunFolderError(
            f"{folder.path}: the worker's source in it has changed since the run began; start a new run"
        )
    if staged != installed_digest():
        raise RunFolderError(
            f"{folder.path}: began with the worker of pybench {manifest.pybench_version}, which is not that of this "
            f"installation ({version('pybench')}); resume with the one it began with, or start a new run"
        )


@contextmanager
def _new_folder(root: Path, suite_name: str) -> Iterator[RunFolder]:
    """Create the run's folder; remove it if preparation fails. Raises ``MachineError`` on a faulty disk."""
    remedy = "nothing was measured yet", " run the same command again"
    with disk_error(root, *remedy):
        folder = RunFolder.create(root, suite_name)
    try:
        with disk_error(folder.path, *remedy):
            yield folder
    except BaseException:
        shutil.rmtree(folder.path, ignore_errors=True)
        raise


def launch_requirements(suite: Suite, plan: Plan, machine: Machine) -> LaunchRequirements:
    """What running a plan takes."""
    return LaunchRequirements(
        backends=tuple(dict.fromkeys(point.settings.backend for point in plan.points)),
        device=_devices(machine)[0],
        request=suite.container,
        gpu_uuids=tuple(gpu.uuid for gpu in machine.gpus)[: max((point.num_gpus for point in plan.points), default=0)],
    )


def _images(container: ContainerSetup | None) -> str:
    return ", ".join(f"{image.name} {image.id}" for image in container.images) if container else ""


def _devices(machine: Machine) -> tuple[DeviceKind, int]:
    """Kind and number of devices that points may occupy: GPUs, or CPU cores where there is none."""
    return ("cuda", len(machine.gpus)) if machine.gpus else ("cpu", machine.cpu_cores)
