"""The short name that profiles and expected tables are keyed by."""

from __future__ import annotations

import re
from collections.abc import Sequence

# First match wins: a part's PCIe or NVL form, with its lower power and other links, stands before the SXM part.
_KINDS: tuple[tuple[str, str], ...] = (
    (r"GB300", "gb300"),
    (r"GB200", "gb200"),
    (r"GH200", "gh200"),
    (r"B300", "b300"),
    (r"B200", "b200"),
    (r"H200 NVL", "h200-nvl"),
    (r"H200", "h200"),
    (r"H100 NVL", "h100-nvl"),
    (r"H100 PCIe", "h100-pcie"),
    (r"H100", "h100"),
    (r"A100.*PCIE", "a100-pcie"),
    (r"A100", "a100"),
    (r"L40S", "l40s"),
    (r"RTX 4090", "rtx4090"),
    (r"RTX 5090", "rtx5090"),
    (r"V100", "v100"),
)


def machine_kind(gpu_names: Sequence[str]) -> str:
    """``cpu`` without GPUs, ``mixed`` with different ones, else a known kind or ``unknown-<name>``."""
    names = set(gpu_names)
    if not names:
        return "cpu"
    if len(names) > 1:
        return "mixed"
    name = names.pop()
    for pattern, kind in _KINDS:
        if re.search(pattern, name, re.IGNORECASE):
            return kind
    return "unknown-" + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
