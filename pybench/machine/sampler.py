"""Record what NVML says about power while an attempt runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

import numpy as np

from pybench.model.errors import MachineError
from pybench.model.trace import (
    MISSING,
    TRACE_VERSION,
    CounterColumns,
    GpuTrace,
    PolledColumns,
    PowerTrace,
    SeriesColumns,
)

# Importing pybench must work where the extension was never built; the reason is told when a sampler is asked for.
_nvml: ModuleType | None
try:
    from pybench import _nvml
except ImportError as error:
    _nvml = None
    _import_problem = str(error)

_PLANES = {"counter": CounterColumns, "series": SeriesColumns, "polled": PolledColumns}


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


def write_trace(trace: PowerTrace, path: Path) -> None:
    """Write a trace as one compressed ``.npz``: a JSON description and one array for each column."""
    columns: dict[str, Any] = {}
    gpus = []
    for i, gpu in enumerate(trace.gpus):
        gpus.append({k: v for k, v in vars(gpu).items() if k not in _PLANES})
        for plane in _PLANES:
            for name, values in vars(getattr(gpu, plane)).items():
                columns[f"{i}.{plane}.{name}"] = np.asarray(values, dtype=_dtype(name))
    head = {k: v for k, v in vars(trace).items() if k != "gpus"}
    described = json.dumps({"version": TRACE_VERSION, "trace": head, "gpus": gpus})
    with path.open("wb") as file:
        np.savez_compressed(file, description=np.array(described), **columns)


def read_trace(path: Path) -> PowerTrace:
    """Read what :func:`write_trace` wrote. Raises ``MachineError`` on another version."""
    with np.load(path, allow_pickle=False) as stored:
        described = json.loads(str(stored["description"]))
        if described["version"] != TRACE_VERSION:
            raise MachineError(
                f"{path}: trace version {described['version']}, this pybench reads {TRACE_VERSION}; "
                "read it with the pybench that wrote it"
            )
        gpus = []
        for i, gpu in enumerate(described["gpus"]):
            prefixes = {plane: f"{i}.{plane}." for plane in _PLANES}
            planes = {
                plane: {name.removeprefix(prefix): stored[name] for name in stored.files if name.startswith(prefix)}
                for plane, prefix in prefixes.items()
            }
            gpus.append(_gpu_from({**gpu, **planes}))
    return PowerTrace(**described["trace"], gpus=tuple(gpus))


def _dtype(column: str) -> type[np.signedinteger[Any] | np.unsignedinteger[Any]]:
    return np.uint64 if column == "energy_mj" else np.int64


def _gpu_from(values: dict[str, Any]) -> GpuTrace:
    return GpuTrace(**{**values, **{plane: kind(**values[plane]) for plane, kind in _PLANES.items()}})


def _trace_from(recording: dict[str, Any]) -> PowerTrace:
    devices = recording.pop("devices")
    return PowerTrace(**recording, gpus=tuple(_gpu_from(device) for device in devices))
