"""A run folder that is ready to measure: from a suite file, or to go on with; the same launcher on every host.

A run goes on with the machine, the software and the variables that it began with, or not at all.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path

from pybench import __version__
from pybench.core.plan import parse_required
from pybench.core.provenance import differences, fingerprint, machine_fields, run_fields
from pybench.files.run.folder import RunFolder
from pybench.files.suite.expected_table import load_tables
from pybench.machine.disk import disk_error
from pybench.machine.environment import snapshot
from pybench.model.container import ContainerSetup
from pybench.model.errors import MachineError, RunFolderError, UsageError, fault_text, is_machine_fault
from pybench.model.machine import Host, Machine, Software, this_build
from pybench.model.manifest import NO_OPTIONS, Manifest, PartOf, PlanOptions
from pybench.model.text import os_text
from pybench.model.tuning import tuning_alone
from pybench.power.recorder import sampler_unavailable_reason
from pybench.run.engines.base import Launcher, LaunchRequirements
from pybench.run.engines.choice import Choose
from pybench.run.engines.environment import recorded
from pybench.run.engines.stage import installed_digest, stage_worker, worker_digest
from pybench.run.hosts.gathering import Gathering
from pybench.run.hosts.messages import Prepare, Prepared
from pybench.run.loop import Run
from pybench.run.suite_plan import launch_requirements, plan_suite, with_packages


def prepare_run(
    path: Path,
    root: Path,
    choose: Callable[[LaunchRequirements], Launcher],
    options: PlanOptions = NO_OPTIONS,
    gathering: Gathering | None = None,
    part_of: PartOf | None = None,
    notify: Callable[[str], None] | None = None,
    earlier_rates: Callable[..., str | None] | None = None,
) -> Run:
    """Check everything that can be checked before the first attempt, then make the run's folder.

    ``choose`` gives the launcher, once it is known what has to run. A ``gathering`` is led by this host. ``part_of`` is
    for a run that is one of several. ``notify`` shows a line for a wait. ``earlier_rates`` finds a run with rates.
    """
    hosts = gathering.hosts if gathering else ()
    machine = hosts[0].machine if hosts else snapshot(notify)
    suite, plan = plan_suite(path, machine, options, root, hosts, earlier_rates=earlier_rates)
    tables = load_tables(Path(suite.path), sorted(suite.tables))
    needs = launch_requirements(suite, plan, machine)
    launcher = choose(needs)
    must = {benchmark.name for benchmark in suite.benchmarks if benchmark.required}
    plan = with_packages(plan, launcher, parse_required(options.require), must)
    with _new_folder(root, suite.name) as folder, folder.lock():
        stage_worker(folder.worker)
        manifest = Manifest(
            run_id=folder.run_id,
            created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
            pybench_version=__version__,
            build=this_build(),
            suite=replace(suite, path=os_text(suite.path)),
            plan=plan,
            device=needs.device,
            machine=machine,
            fingerprint=fingerprint(run_fields(machine, hosts)),
            tables=tables,
            worker_sha256=worker_digest(folder.worker),
            engine=launcher.name,
            options=options,
            part_of=part_of,
            power_reason=sampler_unavailable_reason(),
            container=launcher.container,
            environment=recorded(launcher.tuning(os.environ), launcher.secrets),
            software=launcher.software(),
            machines=gathering.hosts if gathering else (),  # with the images of each, which are known by now
        )
        folder.write_manifest(manifest)
    return Run(folder=folder, manifest=manifest, launcher=launcher, gathering=gathering, is_new=True)


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


_SHOWN_DIGITS = len("sha256:") + 12
PREPARE_LIMIT_S = 7500.0
"""A host pulls an image, or makes an image file, within this; one that is gone is noticed at once."""


def choose_on_all(choose: Choose, gathering: Gathering, needs: LaunchRequirements) -> Launcher:
    """Choose a launcher here, then have all other hosts choose the same, at the same time.

    This host is first: where hosts share a cache of images, the others find there what it has fetched. Raises
    ``MachineError`` with a line for each host that can't, or has other images.
    """
    launcher = choose(needs)
    container = launcher.container
    order = Prepare(
        engine=launcher.name,
        backends=needs.backends,
        device=needs.device,
        request=needs.request,
        num_gpus=len(needs.gpu_uuids),
        container=None if container is None else replace(container, lock=""),  # each host has its own
    )
    for link in gathering.links:
        link.order(order)
    lines = []
    for link in gathering.links:
        prepared, _ = link.answer(Prepared, PREPARE_LIMIT_S)
        if prepared.problem:
            lines.append(f"host {link.name}: {prepared.problem}")
            continue
        there = {image.backend: image.digests for image in prepared.images}
        for image in container.images if container else ():
            other = there.get(image.backend, ())
            if not {*other}.intersection(image.known_by):
                theirs, wanted = (
                    digests[0][:_SHOWN_DIGITS] if digests else "none" for digests in (other, image.known_by)
                )
                unlike = f"image {image.name} is {theirs}, {gathering.lead.name} has {wanted}"
                remedy = f"give both the same --lock, and fetch it: pybench images pull {image.name}"
                lines.append(f"host {link.name}: {unlike}; {remedy}")
    if lines:
        raise MachineError("\n".join(lines))
    images = tuple(sorted(image.id for image in container.images)) if container else ()
    gathering.lead = replace(gathering.lead, engine=launcher.name, images=images)
    for link in gathering.links:
        link.host = replace(link.host, engine=launcher.name, images=images)
    return launcher


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
    # Only the worker of this very installation runs, and only one that half of the run was measured with.
    try:
        staged = worker_digest(folder.worker)
    except OSError as error:
        if is_machine_fault(error):
            raise
        raise RunFolderError(f"{folder.worker}: cannot read the worker's source: {fault_text(error)}") from error
    if staged != manifest.worker_sha256:
        raise RunFolderError(
            f"{folder.path}: the worker's source in it has changed since the run began; start a new run"
        )
    if staged != installed_digest():
        raise RunFolderError(
            f"{folder.path}: began with pybench {manifest.pybench_version}, build {manifest.build or 'unknown'}; this "
            f"is {__version__}, build {this_build()}, whose worker differs; resume with the first, or start a new run"
        )
    needs = launch_requirements(manifest.suite, manifest.plan, manifest.machine)
    launcher = choose(replace(needs, engine=manifest.engine, began=manifest.container))
    began, chosen = _images(manifest.container), _images(launcher.container)
    if began != chosen:
        raise MachineError(
            f"{path}: began with {began or 'no image'}, would go on with {chosen or 'none'}; start a new run"
        )
    check_software(path, manifest, launcher.software(), recorded(launcher.tuning(os.environ), launcher.secrets))
    return Run(folder=folder, manifest=manifest, launcher=launcher, gathering=gathering)


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
