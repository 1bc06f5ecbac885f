"""Record what NVML says about power while an attempt runs."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType, TracebackType
from typing import Any, Self

from pybench.machine.clock import host_clock
from pybench.machine.trace_file import gpu_from_columns
from pybench.model.errors import MachineError
from pybench.model.trace import MISSING, OffsetColumns, PowerTrace

# Importing pybench must work where the extension was never built; the reason is told when a sampler is asked for.
_nvml: ModuleType | None
try:
    from pybench import _nvml
except ImportError as error:
    _nvml = None
    _import_problem = str(error)


def sampler_unavailable_reason() -> str | None:
    """Why no power can be sampled here, ``None`` when it can."""
    if _nvml is None:
        return f"extension not built: {_import_problem}; reinstall with `pip install .`"
    try:
        devices = _nvml.devices()
    except _nvml.NvmlError as error:
        return f"no NVIDIA driver: {error}"
    return None if devices else "the NVIDIA driver shows no GPU"


class PowerSampler:
    """A native thread that samples the GPUs named by UUID, from :meth:`start` to :meth:`stop`."""

    def __init__(self, uuids: Sequence[str]) -> None:
        self._uuids = tuple(uuids)
        self._native: Any = None

    def start(self) -> None:
        """Open NVML and begin. Raises ``MachineError`` when a GPU can't be opened."""
        if _nvml is None:
            raise MachineError(f"power sampler: extension not built: {_import_problem}")
        native = _nvml.PowerSampler(self._uuids)
        try:
            native.start()
        except _nvml.NvmlError as error:
            raise MachineError(f"power sampler: {error}") from error
        self._native = native

    def stop(self) -> PowerTrace:
        """End within about a second and hand over the trace. Raises ``MachineError`` when not started."""
        native, self._native = self._native, None
        if native is None:
            raise MachineError("power sampler: stopped without being started")
        return _trace_from(native.stop())

    def latest_power_w(self) -> dict[str, float | None]:
        """Newest power of each GPU in W, ``None`` where unknown."""
        latest = [MISSING] * len(self._uuids) if self._native is None else self._native.latest_power_mw()
        return {uuid: None if mw == MISSING else mw / 1000 for uuid, mw in zip(self._uuids, latest, strict=True)}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._native is not None:
            self.stop()


def _trace_from(recording: dict[str, Any]) -> PowerTrace:
    devices = recording.pop("devices")
    return PowerTrace(
        start_ns=recording["start_ns"],
        end_ns=recording["end_ns"],
        gpus=tuple(gpu_from_columns(device) for device in devices),
        offsets=OffsetColumns(**recording["offsets"]),
        boot_id=host_clock()[0],
    )
