"""What the matmul workload reaches against a bare loop of the same products, one after the other in one run."""

from __future__ import annotations

import time
from typing import Any

import pytest

pytest.importorskip("transformers")
import torch

from pybench.model.workloads.node import Matmul
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.node.compute import MatmulBench

_GPU = torch.cuda.is_available()
_SETTINGS = Matmul(
    backend="torch",
    precision="bfloat16" if _GPU else "float32",
    m=8192 if _GPU else 512,
    n=8192 if _GPU else 512,
    k=8192 if _GPU else 512,
    products=50,
)


def _bare_flops_per_s(bench: MatmulBench) -> float:
    """The same operands, called in a row."""
    calls = [bench._products[n % len(bench._products)] for n in range(_SETTINGS.products)]
    if _GPU:
        torch.cuda.synchronize()
    start_s = time.perf_counter()
    for call in calls:
        call()
    if _GPU:
        torch.cuda.synchronize()
    length_s = time.perf_counter() - start_s
    return 2 * _SETTINGS.m * _SETTINGS.n * _SETTINGS.k * _SETTINGS.products / length_s


def test_workload_against_bare_loop(benchmark: Any) -> None:
    """``over_bare`` is the ratio of the medians of both, taken turn by turn."""
    torch.set_num_threads(1)
    device = torch.device("cuda", 0) if _GPU else torch.device("cpu")
    bench = MatmulBench(_SETTINGS, TorchRanks(0, 1, device))
    bare: list[float] = []
    own: list[float] = []

    def turn() -> None:
        bare.append(_bare_flops_per_s(bench))
        own.append(bench.measure()["matmul_flops_per_s"])

    benchmark.pedantic(turn, rounds=9, warmup_rounds=2)
    middle = len(own) // 2
    benchmark.extra_info["over_bare"] = round(sorted(own)[middle] / sorted(bare)[middle], 4)
