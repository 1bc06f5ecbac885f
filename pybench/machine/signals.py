"""Signals that end this process."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer, main_thread
from types import FrameType

_AGAIN_S = 0.02


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end what runs as Ctrl-C does: a CI's cancel or a closed terminal leaves nothing behind.

    Python prints and ignores a ``KeyboardInterrupt`` inside a finalizer or the callback of a weak reference, such as
    those of imports: such a signal is sent again.
    """
    last = signal.SIGINT
    again: Timer | None = None

    def interrupt(number: int, _frame: FrameType | None) -> None:
        nonlocal last
        last = signal.Signals(number)
        raise KeyboardInterrupt

    def ignored(found: sys.UnraisableHookArgs) -> None:
        nonlocal again
        if issubclass(found.exc_type, KeyboardInterrupt):
            # Later, and from another thread: an exception inside this hook is ignored too.
            again = Timer(_AGAIN_S, signal.pthread_kill, (main_thread().ident, last))
            again.start()
        else:
            hook(found)

    # nohup has SIGHUP ignored.
    taken = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in taken}
    hook, sys.unraisablehook = sys.unraisablehook, ignored
    try:
        yield
        if again is not None and again.is_alive():
            raise KeyboardInterrupt
    finally:
        if again is not None:
            again.cancel()
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)
