"""A driver call that may hang, given a limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


def returned_within(
    limit_s: float, call: Callable[[], _T], notice_s: float = 0.0, remind: Callable[[], None] | None = None
) -> list[_T]:
    """What the call returns, alone in a list; an empty one where it has not returned within ``limit_s``.

    ``remind`` is called once where it has not returned within ``notice_s``. The call runs in a thread of its own, which
    is then left to end by itself. Raises what the call raises in time.
    """
    found: list[_T] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as error:  # noqa: BLE001 - raised by the caller's thread
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True, name=getattr(call, "__name__", "call"))
    thread.start()
    if remind is not None and notice_s < limit_s:
        thread.join(notice_s)
        if thread.is_alive():
            remind()
        limit_s -= notice_s
    thread.join(limit_s)
    if failed:
        raise failed[0]
    return found
