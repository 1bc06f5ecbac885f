"""Times of day as files have them."""

from __future__ import annotations

from datetime import UTC, datetime

# Their nanoseconds since 1970 are positive, and fit 63 bits.
_YEARS = range(1970, 2262)


def utc_time(text: str) -> datetime:
    """The time in UTC, as which one without an offset counts. Raises ``ValueError``, which shows the text."""
    try:
        found = datetime.fromisoformat(text)
        moved = (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text[:40]!r} is no ISO 8601 time") from error
    if moved.year not in _YEARS:
        raise ValueError(f"{text[:40]!r} is a time that no run was at")
    return moved
