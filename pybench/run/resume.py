"""A run that goes on: on the machine, with the software and the variables that it began with, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path

from pybench import __version__
from pybench.core.provenance import differences, machine_fields
from pybench.files.run.folder import RunFolder
from pybench.machine.environment import snapshot
from pybench.model.container import ContainerSetup
from pybench.model.errors import MachineError, RunFolderError, UsageError, is_machine_fault
from pybench.model.machine import Host, Machine, Software
from pybench.model.manifest import NO_OPTIONS, Manifest, PlanOptions
from pybench.model.tuning import tuning_alone
from pybench.run.engines.base import Launcher, LaunchRequirements
from pybench.run.engines.environment import recorded
from pybench.run.engines.stage import installed_digest, worker_digest
from pybench.run.hosts.gathering import Gathering
from pybench.run.loop import Run
from pybench.run.suite_plan import launch_requirements


def resume_run(
    path: Path,
    choose: Callable[[LaunchRequirements], Launcher],
    given: PlanOptions = NO_OPTIONS,
    gathering: Gathering | None = None,
) -> Run:
    """Open an interrupted run. Raises ``RunFolderError``, ``MachineError`` or ``UsageError`` if it can't go on."""
    folder = RunFolder.open(path)
    folder.require_owner()
    manifest = folder.read_manifest()
    check_options(path, manifest.options, given)
    check_hosts(path, manifest, gathering.hosts if gathering else ())
    machine = gathering.lead.machine if gathering else snapshot()
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
    return Run(folder=folder, manifest=manifest, launcher=launcher, gathering=gathering)


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
            f"installation ({__version__}); resume with the one it began with, or start a new run"
        )


def _images(container: ContainerSetup | None) -> str:
    return ", ".join(f"{image.name} {image.id}" for image in container.images) if container else ""


def check_options(path: Path, began: PlanOptions, given: PlanOptions) -> None:
    """Raise ``UsageError`` where an option differs from the run's own."""
    changed = [
        field.name
        for field in fields(PlanOptions)
        if getattr(given, field.name) not in (None, (), getattr(began, field.name))
    ]
    if changed:
        with_profile = [f"--profile {began.profile}"] if began.profile is not None else []
        first = " ".join((*with_profile, *began.words())) or "no options of the plan"
        raise UsageError(
            f"{path}: --resume continues the run's plan, which began with {first}; leave the others out "
            f"({', '.join(_OPTION_OF.get(name, f'--{name}') for name in changed)}), or start a new run"
        )


_OPTION_OF = {"keep": "-k", "max_gpus": "--max-gpus", "settings": "--set", "time_limit_s": "--time-limit"}


def check_hosts(path: Path, manifest: Manifest, hosts: Sequence[Host]) -> None:
    """Raise ``MachineError`` where the run began over other hosts, or over others than are here."""
    began, now = [host.name for host in manifest.machines], [host.name for host in hosts]
    if began and not now:
        raise MachineError(
            f"{path}: began over hosts {', '.join(began)}; resume it on each of them, {began[0]} first, "
            f"with --rendezvous HOST:PORT --nodes {len(began)}"
        )
    if began != now:
        first = f"over hosts {', '.join(began)}" if began else "on one host"
        raise MachineError(
            f"{path}: began {first}, would go on over {', '.join(now)}; use the same in that order, or start a new run"
        )
    for before, host in zip(manifest.machines, hosts, strict=True):
        if changes := differences(machine_fields(before.machine), machine_fields(host.machine)):
            raise MachineError(
                f"{path}: host {host.name} is not the machine the run began on ({'; '.join(changes)}); start a new run"
            )


def check_machine(path: Path, manifest: Manifest, machine: Machine) -> None:
    """Raise ``MachineError`` on another machine, or under another set of CPUs."""
    began = manifest.machine
    if began.cpus and began.cpus != machine.cpus:
        raise MachineError(
            f"{path}: began on CPUs {began.cpu_ranges}, would go on on CPUs {machine.cpu_ranges}; "
            f"resume it under the first (taskset -c {began.cpu_ranges} pybench run --resume ...), or start a new run"
        )
    if changes := differences(machine_fields(began), machine_fields(machine)):
        raise MachineError(f"{path}: this is not the machine the run began on ({'; '.join(changes)}); start a new run")


def check_software(path: Path, manifest: Manifest, software: Software | None, environment: dict[str, str]) -> None:
    """Raise ``MachineError`` with another Python, other packages or other tuning variables, naming both versions."""
    if manifest.software is not None and software is not None:
        before = {"python": manifest.software.python, **manifest.software.packages}
        if changes := differences(before, {"python": software.python, **software.packages}):
            raise MachineError(
                f"{path}: the workers' Python or packages have changed since the run began ({'; '.join(changes)}); "
                "resume with the first ones (--python), or start a new run"
            )
    if changes := differences(tuning_alone(manifest.environment), tuning_alone(environment)):
        raise MachineError(
            f"{path}: variables that tune workers have changed since the run began ({'; '.join(changes)}); "
            "set them as they were, or start a new run"
        )
