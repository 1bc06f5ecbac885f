"""Date, versions and machine of a run; fields of machine and software, and their fingerprint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from pybench.core.measurements import grouped
from pybench.model.machine import Host, Machine
from pybench.model.manifest import Containment, EnergyScope, Manifest, Provenance
from pybench.model.record import Record

_NOTE = (
    "GPU boards only: what NVLink switches use is left out, "
    "which may understate the energy of tensor parallelism by 3 to 10 % (an estimate)"
)


def provenance(manifest: Manifest, records: Sequence[Record]) -> Provenance:
    """Everything of :class:`Provenance`."""
    machine = manifest.machine
    headers = [rank.header for record in records for rank in record.ranks]
    compatibility = {header.forward_compatible for header in headers} - {None}
    setup = manifest.container
    containment = (
        setup
        if setup is None
        else Containment(
            engine=setup.engine,
            engine_version=setup.engine_version,
            images=tuple(f"{image.name} {image.reference}" for image in setup.images),
            pinned=setup.pinned,
            relaxations=tuple(relaxation.name for relaxation in setup.relaxations),
        )
    )
    try:
        ends = [datetime.fromisoformat(each.started_utc) + timedelta(seconds=each.duration_s) for each in records]
        finished_utc = max(ends).isoformat(timespec="seconds") if ends else None
    except (ValueError, OverflowError, TypeError):  # a journal from elsewhere
        finished_utc = None
    return Provenance(
        created_utc=manifest.created_utc,
        pybench_version=manifest.pybench_version,
        engine=manifest.engine,
        containment=containment,
        gpu_names=machine.gpu_names,
        driver=machine.driver,
        worker_driver=next((header.driver for header in headers if header.driver), None),
        forward_compatible=any(compatibility) if compatibility else None,
        cpu_model=machine.cpu_model,
        kernel=machine.kernel,
        packages=worker_packages(records),
        environment=manifest.environment,
        gpus=machine.gpus,
        fabric=machine.fabric,
        topology=machine.topology,
        energy_scope=_energy_scope(records),
        finished_utc=finished_utc,
        worker_sha256=manifest.worker_sha256,
        hosts=tuple(host.name for host in manifest.machines),
        clock_bound_s=max((part.clock.bound_ns / 1e9 for record in records for part in record.hosts), default=None),
    )


def package_versions(records: Sequence[Record]) -> dict[str, dict[str, None]]:
    """Versions of ``python`` and of every package as workers saw them, each once."""
    headers = (rank.header for record in records for rank in record.ranks)
    versions = grouped(each for header in headers for each in {"python": header.python, **header.packages}.items())
    return {name: dict.fromkeys(seen) for name, seen in versions.items()}


def worker_packages(records: Sequence[Record]) -> dict[str, str]:
    """The same as text; where workers saw several versions, all of them."""
    return {name: ", ".join(versions) for name, versions in package_versions(records).items()}


def software_of(manifest: Manifest, records: Sequence[Record]) -> dict[str, str]:
    """Fields that are equal for runs whose workers had the same packages, images and tuning variables."""
    images = sorted(image.id for image in manifest.container.images) if manifest.container else []
    variables = {f"${name}": value for name, value in manifest.environment.items()}
    return {**worker_packages(records), "images": json.dumps(images), **variables}


def _energy_scope(records: Sequence[Record]) -> EnergyScope | None:
    excluded = {record.energy.scope: record.energy.excluded for record in records if record.energy is not None}
    if not excluded:
        return None
    if "module" in excluded:
        note = "the sensor includes the module's CPU and memory"
        return EnergyScope(scope="module", excluded=excluded["module"], note=note)
    return EnergyScope(scope="gpu_board", excluded=excluded["gpu_board"], note=_NOTE)


HOST_FIELD = "host "
"""Begins the name of a field of another host, before the host's own."""


def machine_fields(machine: Machine) -> dict[str, str]:
    """The machine's fields by name, as text, so that a difference can be reported field by field."""
    fields: dict[str, object] = {
        "gpus": [f"{gpu.name} {gpu.uuid}" for gpu in machine.gpus],
        "power_limits_w": [gpu.power_limit_w for gpu in machine.gpus],
        "mig": [gpu.mig_enabled for gpu in machine.gpus],
        "ecc": [gpu.ecc_enabled for gpu in machine.gpus],
        "fabric": machine.fabric,
        "driver": machine.driver,
        "cpu": (machine.cpu_model, machine.cpu_cores, *([machine.cpu_quota] if machine.cpu_quota else [])),
        "kernel": machine.kernel,
        **({"network": machine.network} if machine.network else {}),
    }
    return {name: json.dumps(value) for name, value in fields.items()}


def run_fields(machine: Machine, hosts: Sequence[Host] = ()) -> dict[str, str]:
    """The fields of the machine that leads, and of every other host as one field."""
    others = [host for host in hosts if host.machine != machine or host is not hosts[0]]
    of_others = {f"{HOST_FIELD}{host.name}": json.dumps(machine_fields(host.machine)) for host in others}
    return {**machine_fields(machine), **of_others}


def fingerprint(fields: Mapping[str, str]) -> str:
    """Short hash over fields."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:12]


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Each field that differs, as ``name: before -> now``; ``none`` where one side has none."""
    changed = [name for name in dict.fromkeys((*before, *now)) if before.get(name) != now.get(name)]
    return [f"{name}: {before.get(name, 'none')} -> {now.get(name, 'none')}" for name in changed]
