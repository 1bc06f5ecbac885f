"""Signals end a process wherever Python is when they come."""

from __future__ import annotations

import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable

import pytest

from pybench.machine.signals import signals_interrupt
from pybench.model.errors import MachineError

NUMBERS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class _Finalized:
    def __init__(self, do: Callable[[], None]) -> None:
        self._do = do

    def __del__(self) -> None:
        self._do()


def _in_finalizer(do: Callable[[], None]) -> None:
    _Finalized(do)


def _in_two_finalizers(do: Callable[[], None]) -> None:
    _Finalized(do)
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
    """The state is as after a signal in time; the former handlers are back."""
    hook = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt), signals_interrupt():
        _in_finalizer(lambda: signal.raise_signal(signal.SIGTERM))
    assert sys.unraisablehook is hook
    assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    time.sleep(0.1)  # nothing is sent after the end


def test_a_signal_that_comes_while_one_is_sent_again_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine starts the thread that sends it later than the signal comes."""
    start = threading.Thread.start

    def start_late(thread: threading.Thread) -> None:
        signal.raise_signal(signal.SIGTERM)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_late)

    def run() -> None:
        _in_finalizer(lambda: signal.raise_signal(signal.SIGTERM))
        time.sleep(60)

    with pytest.raises(KeyboardInterrupt), signals_interrupt():
        run()


def test_of_two_ignored_signals_none_comes_after_the_end() -> None:
    """Where the handlers before it would end the process."""
    with pytest.raises(KeyboardInterrupt), signals_interrupt():
        _in_two_finalizers(lambda: signal.raise_signal(signal.SIGTERM))
    time.sleep(0.1)


@pytest.mark.parametrize("number", NUMBERS)
def test_an_error_that_a_signal_caused_is_an_interruption(number: signal.Signals) -> None:
    """Compiled code, such as pydantic's, wraps an error of the Python that it calls."""
    with pytest.raises(KeyboardInterrupt) as caught, signals_interrupt():
        _wrap(number)
    assert isinstance(caught.value.__cause__, ValueError)


def _wrap(number: signal.Signals) -> None:
    try:
        signal.raise_signal(number)
    except KeyboardInterrupt as error:
        raise ValueError("error building a validator") from error


def test_errors_without_a_signal_are_kept() -> None:
    """And those of pybench also after one: what could not be cleaned up is named."""
    with pytest.raises(ValueError, match="plain"), signals_interrupt():
        raise ValueError("plain")
    with pytest.raises(MachineError, match="is left"), signals_interrupt():
        _fail_to_end()


def _fail_to_end() -> None:
    try:
        signal.raise_signal(signal.SIGTERM)
    finally:
        raise MachineError("a container is left")


def test_other_errors_of_finalizers_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the hook that was there, and they end nothing."""
    seen: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: seen.append(found.exc_type))

    def fail() -> None:
        raise ValueError

    with signals_interrupt():
        _in_finalizer(fail)
    assert seen == [ValueError]
