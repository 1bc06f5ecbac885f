"""What runs inside vLLM's own worker processes: they alone know which GPU they are on and what it holds."""

from __future__ import annotations

from typing import Any


class DeviceReport:
    """Mixed into vLLM's worker class by its argument ``worker_extension_cls``."""

    device: Any
    cache_config: Any

    def pybench_forget_peak(self) -> None:
        """Begin a point: peaks are those from now on."""
        import torch  # noqa: PLC0415 - the front end reads this file's name only

        torch.cuda.reset_peak_memory_stats(self.device)

    def pybench_device_report(self) -> list[str | int]:
        """UUID, peak bytes allocated, peak bytes reserved, tokens of key-value cache (0: unknown)."""
        import torch  # noqa: PLC0415 - the front end reads this file's name only

        uuid = str(torch.cuda.get_device_properties(self.device).uuid)
        cache = self.cache_config
        return [
            uuid if uuid.startswith("GPU-") else f"GPU-{uuid}",
            torch.cuda.max_memory_allocated(self.device),
            torch.cuda.max_memory_reserved(self.device),
            (cache.num_gpu_blocks or 0) * (cache.block_size or 0),
        ]
