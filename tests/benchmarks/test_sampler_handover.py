"""What the sampler's records cost: one push into a ring, and handing ten million of them to NumPy."""

from __future__ import annotations

import importlib.util
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pybind11
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

NUM_RECORDS = 10**7
NUM_BATCHES = 2000


@pytest.fixture(scope="module")
def handover(native: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Any:
    sources = [f"csrc/{name}.cpp" for name in ("recording", "clock", "capability")]
    includes = (f"-I{pybind11.get_include()}", f"-I{sysconfig.get_path('include')}")
    path = tmp_path_factory.mktemp("handover") / "handover.so"
    native(path, "tests/native/handover.cpp", *sources, *includes, "-O2", "-shared", "-fPIC", "-fvisibility=hidden")
    spec = importlib.util.spec_from_file_location("handover", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_hand_over_ten_million_records(benchmark: BenchmarkFixture, handover: Any) -> None:
    def fresh() -> tuple[tuple[Any], dict[str, Any]]:
        return (handover.recording_of(NUM_RECORDS),), {}

    columns = benchmark.pedantic(handover.hand_over, setup=fresh, rounds=10)
    energy_mj = columns["gpus"][0]["counter"]["energy_mj"]
    assert (len(energy_mj), energy_mj[-1], energy_mj.flags.owndata) == (NUM_RECORDS, np.uint64(42), False)


def test_ring_push(benchmark: BenchmarkFixture, handover: Any) -> None:
    push_ns = benchmark.pedantic(handover.push_ns, args=(NUM_BATCHES,), rounds=5)
    benchmark.extra_info["push_ns_p50"] = round(push_ns, 1)
    assert push_ns > 0
