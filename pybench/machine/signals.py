"""Signals that end this process."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread, main_thread
from types import FrameType
from typing import Self

from pybench.model.errors import PybenchError

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN_S = 0.02


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end what runs as Ctrl-C does: a CI's cancel or a closed terminal leaves nothing behind.

    Raises ``KeyboardInterrupt`` after a signal, also where Python or a library's compiled code replaces that by an
    error of its own, or by none.
    """
    with _Interruption() as interruption:
        try:
            yield
        except PybenchError:
            raise
        except Exception as error:
            # Such as pydantic's, whose compiled code calls Python and wraps whatever that raises.
            if interruption.last is not None:
                raise KeyboardInterrupt from error
            raise
        if not interruption.raised.is_set():
            raise KeyboardInterrupt


class _Interruption:
    """Raises ``KeyboardInterrupt`` on a signal and keeps the ``last`` one.

    In a finalizer or a callback of a weak reference, as of imports, Python prints an exception and goes on. Another
    thread then sends the signal again until one is ``raised`` elsewhere.
    """

    def __init__(self) -> None:
        self.last: signal.Signals | None = None
        self.raised = Event()
        self.raised.set()

    def __enter__(self) -> Self:
        # nohup ignores SIGHUP; a shell ignores SIGINT for background jobs.
        taken = [number for number in _NUMBERS if signal.getsignal(number) is not signal.SIG_IGN]
        self._former = {number: signal.signal(number, self._take) for number in taken}
        self._hook, sys.unraisablehook = sys.unraisablehook, self._ignored
        return self

    def __exit__(self, *_: object) -> None:
        self.raised.set()
        sys.unraisablehook = self._hook
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.last = signal.Signals(number)
        while frame is not None:
            if frame.f_code is _Interruption._ignored.__code__:
                return  # an exception of the hook is ignored, too
            frame = frame.f_back
        self.raised.set()
        raise KeyboardInterrupt

    def _ignored(self, unraisable: sys.UnraisableHookArgs) -> None:
        if self.last is None or not issubclass(unraisable.exc_type, KeyboardInterrupt):
            self._hook(unraisable)
        elif self.raised.is_set():
            self.raised.clear()
            Thread(target=self._send, args=(self.last,), daemon=True).start()

    def _send(self, number: signal.Signals) -> None:
        thread = main_thread().ident
        assert thread is not None, "the main thread runs"
        while not self.raised.wait(_AGAIN_S):
            signal.pthread_kill(thread, number)
