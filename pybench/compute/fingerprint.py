"""What must match for two runs to be compared."""

from __future__ import annotations

import hashlib
import json

from pybench.model.backend import BACKENDS
from pybench.model.machine import Machine

_NCCL = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")
_PACKAGES = dict.fromkeys((*(name for traits in BACKENDS.values() for name in traits.distributions), *_NCCL))


def fingerprint_fields(machine: Machine) -> dict[str, str]:
    """The fields by name, as text, so that a mismatch can be told field by field."""
    fields: dict[str, object] = {
        "gpus": machine.gpu_names,
        "power_limits_w": [gpu.power_limit_w for gpu in machine.gpus],
        "mig": [gpu.mig_enabled for gpu in machine.gpus],
        "ecc": [gpu.ecc_enabled for gpu in machine.gpus],
        "fabric": machine.fabric,
        "driver": machine.driver,
        "cpu": (machine.cpu_model, machine.cpu_cores),
        "image": machine.container_image,
        **{name: machine.packages.get(name) for name in _PACKAGES},
    }
    return {name: json.dumps(value) for name, value in fields.items()}


def fingerprint(machine: Machine) -> str:
    """Short hash over :func:`fingerprint_fields`."""
    text = json.dumps(fingerprint_fields(machine), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
