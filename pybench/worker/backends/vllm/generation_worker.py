"""What generation runs inside vLLM's own worker processes."""

from __future__ import annotations

from pybench.worker.backends.vllm.device_report import DeviceReport


class GenerationWorker(DeviceReport):
    """Mixed into vLLM's worker class by its argument ``worker_extension_cls``."""

    def pybench_spread_experts(self, seed: int) -> int:
        """Have a mixture's tokens spread over its experts; returns the number of routers that this worker has."""
        from pybench.worker.backends.vllm.expert_spread import spread

        return spread(self.model_runner.model.named_parameters(), seed)
