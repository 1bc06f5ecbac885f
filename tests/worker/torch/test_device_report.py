"""What vLLM's workers report of the device that they run on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from pybench.worker.backends.vllm.worker import DeviceReport

RECORDED = Path(__file__).parents[1] / "recorded" / "vllm-0.20.2.json"


def test_workers_report_what_they_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """In NVML's form; 2.5 sequences of 64 tokens fit; without a cache its room is unknown."""
    torch = pytest.importorskip("torch")
    name = "vllm/v1/core/kv_cache_utils.py:get_max_concurrency_for_kv_cache_config"
    assert json.loads(RECORDED.read_text())["parameters"][name] == ["vllm_config", "kv_cache_config"]
    utils = ModuleType("vllm.v1.core.kv_cache_utils")
    utils.get_max_concurrency_for_kv_cache_config = lambda vllm_config, kv_cache_config: (  # type: ignore[attr-defined]
        kv_cache_config.num_blocks / vllm_config.blocks_of_a_sequence
    )
    for place in ("vllm", "vllm.v1", "vllm.v1.core"):
        monkeypatch.setitem(sys.modules, place, ModuleType(place))
    monkeypatch.setitem(sys.modules, utils.__name__, utils)
    forgotten: list[str] = []
    cuda = SimpleNamespace(
        get_device_properties=lambda _device: SimpleNamespace(uuid="12ab"),
        max_memory_allocated=lambda _device: 3,
        max_memory_reserved=lambda _device: 4,
        reset_peak_memory_stats=forgotten.append,
    )
    monkeypatch.setattr(torch, "cuda", cuda)
    worker = DeviceReport()
    worker.device = "cuda:0"
    worker.vllm_config = SimpleNamespace(blocks_of_a_sequence=4, model_config=SimpleNamespace(max_model_len=64))
    cache = SimpleNamespace(num_blocks=10, kv_cache_groups=[object()] * 2)
    worker.model_runner = SimpleNamespace(kv_cache_config=cache)
    assert worker.pybench_device_report() == ["GPU-12ab", 3, 4, 160]
    worker.model_runner = SimpleNamespace(kv_cache_config=SimpleNamespace(num_blocks=10, kv_cache_groups=[]))
    assert worker.pybench_device_report()[3] == 0
    worker.pybench_forget_peak()
    assert forgotten == ["cuda:0"]
