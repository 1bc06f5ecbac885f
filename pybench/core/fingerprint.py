"""What two runs must share to be compared: the machine, and the software on it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from pybench.model.host import Host
from pybench.model.machine import Machine

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
    return {
        **machine_fields(machine),
        **{f"{HOST_FIELD}{host.name}": json.dumps(machine_fields(host.machine)) for host in others},
    }


def software_fields(
    packages: Mapping[str, str], images: Sequence[str], environment: Mapping[str, str]
) -> dict[str, str]:
    """The same of what workers ran: packages (and ``python``) as they saw them, images by digest, tuning variables."""
    return {**packages, "images": json.dumps(sorted(images)), **{f"${name}": v for name, v in environment.items()}}


def fingerprint(fields: Mapping[str, str]) -> str:
    """Short hash over fields."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:12]


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Each field that differs, as ``name: before -> now``; ``none`` where one side has none."""
    names = dict.fromkeys((*before, *now))
    return [
        f"{name}: {before.get(name, 'none')} -> {now.get(name, 'none')}"
        for name in names
        if before.get(name) != now.get(name)
    ]
