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
            if interruption.has_come:
                raise KeyboardInterrupt from error
            raise
        if interruption.is_due:
            raise KeyboardInterrupt


class _Interruption:
    """Raises ``KeyboardInterrupt`` on a signal.

    Inside a finalizer, or a callback of a weak reference such as imports have, Python prints an exception and goes on:
    the signal is sent again from another thread until one is raised elsewhere.
    """

    def __init__(self) -> None:
        self._last: signal.Signals | None = None
        self._raised = Event()
        self._raised.set()

    @property
    def has_come(self) -> bool:
        """Whether there was a signal."""
        return self._last is not None

    @property
    def is_due(self) -> bool:
        """Whether a signal is about to be sent again."""
        return not self._raised.is_set()

    def __enter__(self) -> Self:
        # nohup ignores SIGHUP; a shell ignores SIGINT for background jobs.
        taken = [number for number in _NUMBERS if signal.getsignal(number) is not signal.SIG_IGN]
        self._former = {number: signal.signal(number, self._take) for number in taken}
        self._hook, sys.unraisablehook = sys.unraisablehook, self._ignored
        return self

    def __exit__(self, *_: object) -> None:
        self._raised.set()
        sys.unraisablehook = self._hook
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        self._last = signal.Signals(number)
        while frame is not None:
            if frame.f_code is _Interruption._ignored.__code__:
                return  # an exception of the hook is ignored, too
            frame = frame.f_back
        self._raised.set()
        raise KeyboardInterrupt

    def _ignored(self, found: sys.UnraisableHookArgs) -> None:
        if self._last is None or not issubclass(found.exc_type, KeyboardInterrupt):
            self._hook(found)
        elif self._raised.is_set():
            self._raised.clear()
            Thread(target=self._send, args=(self._last,), daemon=True).start()

    def _send(self, number: signal.Signals) -> None:
        thread = main_thread().ident
        assert thread is not None, "the main thread runs"
        while not self._raised.wait(_AGAIN_S):
            signal.pthread_kill(thread, number)
