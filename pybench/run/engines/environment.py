"""What a worker inherits from the shell: an allow-list, so that two shells give one measurement."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from pybench.model.text import os_text
from pybench.model.tuning import credentials_in, is_secret, tunes
from pybench.run.engines.redaction import MARK

# Characters from which a part of a credential is no word of a record.
_MIN_ALONE = 10


def tuning(host: Mapping[str, str]) -> dict[str, str]:
    """Tuning variables that mean the same inside a container: no secrets, no paths, nothing on two lines."""
    return {
        name: value
        for name, value in host.items()
        if tunes(name, value) and not value.startswith("/") and not {"\n", "\r", "\0"}.intersection(value)
    }


def on_this_machine(host: Mapping[str, str]) -> dict[str, str]:
    """Tuning variables of a worker in no container: also paths, which mean the same there; no secrets."""
    return {name: value for name, value in host.items() if tunes(name, value)}


def recorded(values: Mapping[str, str], secrets: Iterable[str] = ()) -> dict[str, str]:
    """``values`` as a run's record keeps them, in order of their names.

    Values of ``secrets``, of every name that looks like one, and credentials within values are :data:`MARK`.
    """
    hidden = frozenset(secrets)
    kept = {}
    for name, value in sorted(values.items()):
        kept[name] = MARK if name in hidden or is_secret(name, value) else os_text(value)
        for part in credentials_in(kept[name]):
            kept[name] = kept[name].replace(part, MARK)
    return kept


def passed_secrets(passed: Mapping[str, str], secrets: Iterable[str]) -> Iterator[str]:
    """Texts that give a credential away in a worker's log: the suite's ``secrets``, and parts of what was ``passed``.

    Short ones are such texts only with a user and ``:``, or a ``@``: they may be words that a record needs.
    """
    yield from (passed[name] for name in secrets)
    for part in (part for value in passed.values() for part in credentials_in(value)):
        yield part if ":" in part else f"{part}@"
        words = (part, part.partition(":")[2], *re.split("[&;=]", part))
        yield from (word for word in words if len(word) >= _MIN_ALONE)


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
