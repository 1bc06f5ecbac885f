"""The time to launch a kernel on a device."""

from __future__ import annotations

import time

import torch

from pybench.model.workloads.node import LaunchLatency
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.node.measured import Measured

# A launch that is waited for costs several that are not.
_ROUND_TRIPS_FRACTION = 0.1


class LaunchLatencyBench(Measured):
    """Additions to one number. On a CPU, which launches nothing, what remains is torch's own way to its kernel."""

    def __init__(self, settings: LaunchLatency, ranks: TorchRanks) -> None:
        super().__init__(ranks)
        self._launches = settings.launches
        self._number = torch.zeros(1, device=self.device)

    def measure(self) -> dict[str, float]:
        """Host seconds of one launch, and of one launch with the wait for its end."""
        self._wait()
        start_s = time.perf_counter()
        for _ in range(self._launches):
            self._number.add_(1)
        launch_s = (time.perf_counter() - start_s) / self._launches
        self._wait()
        num_trips = max(1, round(self._launches * _ROUND_TRIPS_FRACTION))
        start_s = time.perf_counter()
        for _ in range(num_trips):
            self._number.add_(1)
            self._wait()
        return {"launch_s": launch_s, "round_trip_s": (time.perf_counter() - start_s) / num_trips}

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
