"""Signals end a process wherever Python is when they come."""

from __future__ import annotations

import signal
import sys
import time
import weakref
from collections.abc import Callable

import pytest

from pybench.machine.signals import signals_interrupt

NUMBERS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class _Finalized:
    def __init__(self, do: Callable[[], None]) -> None:
        self._do = do

    def __del__(self) -> None:
        self._do()


def _in_finalizer(do: Callable[[], None]) -> None:
    _Finalized(do)


def _in_weak_reference(do: Callable[[], None]) -> None:
    """As imports do to forget their locks."""
    watched = _Finalized(lambda: None)
    _reference = weakref.ref(watched, lambda _reference: do())
    del watched


@pytest.fixture(autouse=True)
def _signals_of_a_terminal() -> object:
    # A shell that started the tests behind & or nohup has these signals ignored.
    before = {number: signal.signal(number, signal.default_int_handler) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("where", [_in_finalizer, _in_weak_reference])
def test_a_signal_that_python_ignores_comes_again(where: Callable[..., None], number: signal.Signals) -> None:
    """Inside a finalizer, where Python only prints an exception: what runs or waits there ends all the same."""
    went_on: list[bool] = []

    def run() -> None:
        with signals_interrupt():
            where(lambda: signal.raise_signal(number))
            went_on.append(True)
            time.sleep(60)

    with pytest.raises(KeyboardInterrupt):
        run()
    assert went_on


def test_a_signal_that_is_ignored_at_the_very_end_is_not_lost() -> None:
    """What is left by then is as after a signal that came in time; the former handlers are back."""
    hook = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt), signals_interrupt():
        _in_finalizer(lambda: signal.raise_signal(signal.SIGTERM))
    assert sys.unraisablehook is hook
    assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    time.sleep(0.1)  # nothing is sent after the end


def test_other_errors_of_finalizers_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the hook that was there, and they end nothing."""
    seen: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: seen.append(found.exc_type))

    def fail() -> None:
        raise ValueError

    with signals_interrupt():
        _in_finalizer(fail)
    assert seen == [ValueError]
