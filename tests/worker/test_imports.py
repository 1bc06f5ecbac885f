"""Imports without the garbage collector's passes."""

from __future__ import annotations

import gc
import sys
import weakref
from importlib import import_module
from types import ModuleType

import pytest

from pybench.worker.imports import spared_by_collector, without_collector


class Cycle:
    """Freed by the collector alone."""

    def __init__(self) -> None:
        self.own = self


def test_nothing_is_collected_meanwhile_and_all_of_it_afterwards() -> None:
    """Cycles that imports leave behind are freed later."""
    with without_collector():
        assert not gc.isenabled()
        left = weakref.ref(Cycle())
        for _ in range(10_000):
            Cycle()
        assert left() is not None
    assert gc.isenabled()
    gc.collect()
    assert left() is None


def test_a_failed_import_leaves_the_collector_on() -> None:
    """Also inside another import."""
    with pytest.raises(ImportError), without_collector():
        raise ImportError
    assert gc.isenabled()
    with without_collector():
        with without_collector():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_modules_that_are_new_are_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lives at a second import, which brings none, is not: it may be a model."""
    before = gc.get_freeze_count()
    with spared_by_collector():
        pass
    assert gc.get_freeze_count() == before
    try:
        with spared_by_collector():
            monkeypatch.setitem(sys.modules, "new_to_all", ModuleType("new_to_all"))
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()


def test_a_failure_caught_meanwhile_keeps_nothing_that_callers_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its traceback holds their frames: frozen, it kept the first model of a search for the largest batch."""

    class Model:
        pass

    def catch() -> None:
        try:
            import_module("no_such_module")
        except ImportError as error:
            kept = error  # of its own traceback's frame
            assert kept.__traceback__

    def build() -> weakref.ref[Model]:
        with spared_by_collector():
            monkeypatch.setitem(sys.modules, "new_to_all", ModuleType("new_to_all"))
            catch()
        model = Model()
        return weakref.ref(model)

    try:
        model = build()
        gc.collect()
        assert model() is None
    finally:
        gc.unfreeze()
