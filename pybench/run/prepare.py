"""From a suite file to a run folder that is ready to measure, with the same launcher on every host."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pybench import __version__
from pybench.core.plan import parse_required
from pybench.core.provenance import fingerprint, run_fields
from pybench.files.run.folder import RunFolder
from pybench.files.suite.expected_table import load_tables
from pybench.machine.disk import disk_error
from pybench.machine.environment import snapshot
from pybench.model.container import ContainerSetup
from pybench.model.errors import MachineError
from pybench.model.machine import this_build
from pybench.model.manifest import NO_OPTIONS, Manifest, PartOf, PlanOptions
from pybench.model.text import os_text
from pybench.power.recorder import sampler_unavailable_reason
from pybench.run.engines.base import Launcher, LaunchRequirements
from pybench.run.engines.choice import Choose
from pybench.run.engines.environment import recorded
from pybench.run.engines.stage import stage_worker, worker_digest
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
        elif container is not None:
            lines += _unlike_images(gathering.lead.name, container, link.name, prepared)
    if lines:
        raise MachineError("\n".join(lines))
    images = tuple(sorted(image.id for image in container.images)) if container else ()
    gathering.lead = replace(gathering.lead, engine=launcher.name, images=images)
    for link in gathering.links:
        link.host = replace(link.host, engine=launcher.name, images=images)
    return launcher


def _unlike_images(lead: str, wanted: ContainerSetup, host: str, prepared: Prepared) -> Iterator[str]:
    """A line for each image that is another one on ``host`` than on the host ``lead``, which has those ``wanted``."""
    found = {image.backend: image.digests for image in prepared.images}
    for image in wanted.images:
        there = found.get(image.backend, ())
        if not {*there}.intersection(image.known_by):
            here, other = (digests[0][:_SHOWN_DIGITS] if digests else "none" for digests in (image.known_by, there))
            yield (
                f"host {host}: image {image.name} is {other}, {lead} has {here}; "
                f"give both the same --lock, and fetch it: pybench images pull {image.name}"
            )
