"""Amounts of memory as people read them: in GiB everywhere. Rates are decimal, as GB/s."""

from __future__ import annotations

BYTE_SCALES = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
_WHOLE_FROM = 100


def amount_text(num_bytes: float) -> str:
    """With three digits: ``29.1 GiB``; less than one in MiB, KiB or bytes."""
    factor, unit = next((scale for scale in BYTE_SCALES if abs(num_bytes) >= scale[0]), BYTE_SCALES[-1])
    amount = num_bytes / factor
    return f"{amount:,.0f} {unit}" if abs(amount) >= _WHOLE_FROM else f"{amount:.3g} {unit}"
