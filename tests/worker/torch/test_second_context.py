"""A second context: the driver's calls, and its refusals."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

pytest.importorskip("transformers")
import torch

from pybench.worker.backends.torch.generate import make_and_destroy_context

GPU = torch.device("cuda", 3)


class FakeDriver:
    """Hands out contexts and counts those that are left; ``refused`` answers with a code."""

    def __init__(self, refused: str | None = None) -> None:
        self.refused = refused
        self.contexts: dict[int, int] = {}
        self.calls: list[str] = []

    def _answer(self, name: str) -> int:
        self.calls.append(name)
        return 2 if name == self.refused else 0

    def cuDeviceGet(self, handle: Any, ordinal: ctypes.c_int) -> int:  # noqa: N802 - the driver's name
        handle._obj.value = 100 + ordinal.value
        return self._answer("cuDeviceGet")

    def cuCtxCreate_v2(self, context: Any, flags: ctypes.c_uint, handle: ctypes.c_int) -> int:  # noqa: N802
        code = self._answer("cuCtxCreate_v2")
        if not code:
            assert flags.value == 0
            context._obj.value = 0x7F00_0000_1000
            self.contexts[context._obj.value] = handle.value
        return code

    def cuCtxDestroy_v2(self, context: ctypes.c_void_p) -> int:  # noqa: N802
        assert self.contexts.pop(context.value or 0) == 100 + GPU.index
        return self._answer("cuCtxDestroy_v2")


def test_context_is_made_on_the_device_and_destroyed(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeDriver()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver if name == "libcuda.so.1" else None)
    assert make_and_destroy_context(GPU)
    assert driver.calls == ["cuDeviceGet", "cuCtxCreate_v2", "cuCtxDestroy_v2"]
    assert not driver.contexts


@pytest.mark.parametrize("refused", ["cuDeviceGet", "cuCtxCreate_v2", "cuCtxDestroy_v2"])
def test_refusal_is_reported_and_nothing_follows_it(monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    driver = FakeDriver(refused)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver)
    assert not make_and_destroy_context(GPU)
    assert driver.calls[-1] == refused


def test_without_a_driver_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert not make_and_destroy_context(GPU)
