"""A moment of a GPU's work."""

from __future__ import annotations

import torch


def timed_event() -> torch.cuda.Event:
    """An event with a time, behind all that the current stream was given so far."""
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event
