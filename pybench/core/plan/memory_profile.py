"""Which profile of a suite a machine gets that names none."""

from __future__ import annotations

import re
from collections.abc import Collection

_BYTES_PER_GIB = 2**30
# A driver reports a little less than the card is sold with: 39.4 GiB of 40 GB.
_UNREPORTED = 1.05
# A profile for a kind and a memory is for cards of about that memory, not for their larger form.
_MUCH_MORE = 1.5


def profile_of(profiles: Collection[str], machine_kind: str, gpu_memory_bytes: float | None) -> str | None:
    """``a100-40gb`` on an A100 of that memory, else ``a100``, else the largest of ``40gb``, ``16gb`` … that is there.

    ``None`` where none fits.
    """
    memory_gb = 0.0 if gpu_memory_bytes is None else gpu_memory_bytes / _BYTES_PER_GIB * _UNREPORTED
    own = _largest(profiles, f"{machine_kind}-", memory_gb)
    if own and memory_gb < _MUCH_MORE * own:
        return f"{machine_kind}-{own}gb"
    if machine_kind in profiles:
        return machine_kind
    general = _largest(profiles, "", memory_gb)
    return f"{general}gb" if general else None


def _largest(profiles: Collection[str], prefix: str, memory_gb: float) -> int:
    """Greatest memory, in GB, of the profiles ``<prefix><memory>gb`` that is at most ``memory_gb``; 0 for none."""
    found = (re.fullmatch(rf"{re.escape(prefix)}([0-9]{{1,4}})gb", name) for name in profiles)
    return max((size for match in found if match and (size := int(match[1])) <= memory_gb), default=0)
