"""Extensions of vLLM's worker processes: only these know their GPU and its memory."""

from __future__ import annotations

from typing import Any

from pybench.worker.gpus import nvml_uuid


class DeviceReport:
    """Base class of our extensions of vLLM's worker class."""

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

        from pybench.worker.backends.common_torch.memory import allocator_peak_bytes

        return [
            nvml_uuid(torch.cuda.get_device_properties(self.device).uuid),
            *allocator_peak_bytes(self.device),
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


class GenerationWorker(DeviceReport):
    """Mixed into vLLM's worker class by its argument ``worker_extension_cls``."""

    def pybench_spread_experts(self, seed: int) -> int:
        """Have a mixture's tokens spread over its experts; returns the number of routers that this worker has."""
        from pybench.worker.backends.vllm.expert_spread import spread

        return spread(self.model_runner.model.named_parameters(), seed)
