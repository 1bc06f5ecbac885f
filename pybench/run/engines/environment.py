"""What a worker inherits from the shell: an allow-list, so that two shells give one measurement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pybench.model.os_text import os_text
from pybench.model.tuning import URL_USER, is_secret_name, tunes
from pybench.run.engines.redaction import MARK


def tuning(host: Mapping[str, str]) -> dict[str, str]:
    """Tuning variables that mean the same inside a container: no secrets, no paths, nothing on two lines."""
    return {
        name: value
        for name, value in host.items()
        if tunes(name) and not value.startswith("/") and not {"\n", "\r", "\0"}.intersection(value)
    }


def on_this_machine(host: Mapping[str, str]) -> dict[str, str]:
    """Tuning variables of a worker in no container: also paths, which mean the same there; no secrets."""
    return {name: value for name, value in host.items() if tunes(name)}


def recorded(values: Mapping[str, str], secrets: Iterable[str] = ()) -> dict[str, str]:
    """``values`` as a run's record keeps them, in order of their names.

    Values of ``secrets``, and of every name that looks like one, are replaced by :data:`MARK`, as are a URL's user and
    password.
    """
    hidden = frozenset(secrets)
    return {
        name: MARK if name in hidden or is_secret_name(name) else URL_USER.sub(rf"\1{MARK}@", os_text(value))
        for name, value in sorted(values.items())
    }


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
