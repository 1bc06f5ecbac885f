"""What a worker inherits from the shell: an allow-list, so that two shells give one measurement."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pybench.engines.redaction import MARK
from pybench.model.backend import BACKENDS

# How CUDA and collectives are tuned, and each backend.
TUNING_PREFIXES = (
    *("CUDA_", "NCCL_", "NVSHMEM_", "GLOO_"),
    *(prefix for traits in BACKENDS.values() for prefix in traits.tuning_prefixes),
)
# Set by us or by torchrun: an inherited value would point a rank at the wrong GPU.
NEVER_INHERITED = frozenset({"CUDA_VISIBLE_DEVICES"})
# A credential does not tune: a suite must request it by name. Endings, so that VLLM_MAX_TOKENS stays a number.
_SECRET_WORDS = ("TOKEN", "KEY", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PWD", "CREDENTIAL", "CREDENTIALS", "AUTH")
_URL_USER = re.compile(r"(\b\w+://)[^/@\s]+@")


def tuning(host: Mapping[str, str]) -> dict[str, str]:
    """Tuning variables that mean the same inside a container: no secrets, no paths, nothing on two lines."""
    return {
        name: value
        for name, value in host.items()
        if _tunes(name) and not value.startswith("/") and not {"\n", "\r", "\0"}.intersection(value)
    }


def on_this_machine(host: Mapping[str, str]) -> dict[str, str]:
    """Tuning variables of a worker in no container: also paths, which mean the same there; no secrets."""
    return {name: value for name, value in host.items() if _tunes(name)}


def _tunes(name: str) -> bool:
    return name.startswith(TUNING_PREFIXES) and name not in NEVER_INHERITED and not is_secret_name(name)


def recorded(values: Mapping[str, str], secrets: Iterable[str] = ()) -> dict[str, str]:
    """``values`` as a run's record keeps them, in order of their names.

    Values of ``secrets``, and of every name that looks like one, are replaced by :data:`MARK`, as are a URL's user and
    password.
    """
    hidden = frozenset(secrets)
    return {
        name: MARK if name in hidden or is_secret_name(name) else _URL_USER.sub(rf"\1{MARK}@", value)
        for name, value in sorted(values.items())
    }


def is_secret_name(name: str) -> bool:
    """Whether a part of a variable's name, between underscores, is one that credentials have."""
    return any(part.endswith(_SECRET_WORDS) for part in name.upper().split("_"))


def fixed(gpu_uuids: tuple[str, ...]) -> dict[str, str]:
    """What every worker gets, whatever the shell sets: its GPUs by UUID, no network look-ups, whole lines of log."""
    values = {
        "CUDA_VISIBLE_DEVICES": ",".join(gpu_uuids),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    # One rank is one core: otherwise a single rank would use every core and no speedup could show.
    return values if gpu_uuids else {**values, "OMP_NUM_THREADS": "1"}
