"""Extensions of vLLM's worker processes: only these know their GPU and its memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from pybench.worker.gpus import nvml_uuid
from pybench.worker.seeds import weight_seed

_EMBEDDING = (".embedding.weight", ".embed_tokens.weight")


@torch.no_grad()
def spread(parameters: Iterable[tuple[str, torch.Tensor]], seed: int) -> int:
    """Change embeddings and routers in place; returns how many routers there are.

    Embeddings become large compared with the layers' outputs, so that tokens differ. Routers' rows become random and
    equally long: the expert with the longest row would be chosen most. A router is the same on every GPU.
    """
    num_routers = 0
    for name, weight in parameters:
        if name.endswith(_EMBEDDING):
            generator = torch.Generator(weight.device).manual_seed(weight_seed(seed, name))
            weight.normal_(0.0, 1.0, generator=generator)
        elif name.endswith(".router.bias"):
            weight.zero_()
        elif name.endswith(".router.weight"):
            generator = torch.Generator().manual_seed(weight_seed(seed, name))
            rows = torch.randn(weight.shape, generator=generator)
            weight.copy_(rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True))
            num_routers += 1
    return num_routers


class DeviceReport:
    """Base class of our extensions of vLLM's worker class."""

    device: Any
    model_runner: Any
    vllm_config: Any

    def pybench_forget_peak(self) -> None:
        """Begin a point: peaks are those from now on."""
        torch.cuda.reset_peak_memory_stats(self.device)

    def pybench_device_report(self) -> list[str | int]:
        """UUID, peak bytes allocated, peak bytes reserved, tokens of key-value cache (0: unknown)."""
        from pybench.worker.backends.common_torch.memory import allocator_peak_bytes

        return [
            nvml_uuid(torch.cuda.get_device_properties(self.device).uuid),
            *allocator_peak_bytes(self.device),
            self._cache_tokens(),
        ]

    def _cache_tokens(self) -> int:
        """Whole sequences' tokens, as vLLM itself reports them at start.

        Layers with other attention use blocks of the same pool, so blocks times their size is too much.
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
        return spread(self.model_runner.model.named_parameters(), seed)


WEIGHTS, CACHE = "weights", "kv_cache"
