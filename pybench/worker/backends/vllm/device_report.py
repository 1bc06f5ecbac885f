"""What runs inside vLLM's own worker processes: they alone know which GPU they are on and what it holds."""

from __future__ import annotations

from typing import Any

from pybench.worker.gpus import nvml_uuid


class DeviceReport:
    """What each of the classes has that are mixed into vLLM's worker class."""

    device: Any
    model_runner: Any
    vllm_config: Any

    def pybench_forget_peak(self) -> None:
        """Begin a point: peaks are those from now on."""
        import torch

        torch.cuda.reset_peak_memory_stats(self.device)

    def pybench_device_report(self) -> list[str | int]:
        """UUID, peak bytes allocated, peak bytes reserved, tokens of key-value cache (0: unknown)."""
        import torch

        return [
            nvml_uuid(torch.cuda.get_device_properties(self.device).uuid),
            torch.cuda.max_memory_allocated(self.device),
            torch.cuda.max_memory_reserved(self.device),
            self._cache_tokens(),
        ]

    def _cache_tokens(self) -> int:
        """Whole sequences' tokens, as vLLM itself reports them at start.

        Layers with other attention have blocks of their own in the same pool: blocks times their size is too much.
        """
        from vllm.v1.core.kv_cache_utils import get_max_concurrency_for_kv_cache_config

        cache = getattr(self.model_runner, "kv_cache_config", None)
        if cache is None or not cache.kv_cache_groups:
            return 0
        sequences: float = get_max_concurrency_for_kv_cache_config(self.vllm_config, cache)
        return int(sequences * self.vllm_config.model_config.max_model_len)
