"""Record the power readings of NVML from native threads, independent of the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, Self

from pybench.machine.extension import REMEDY, extension_fault
from pybench.machine.nvml import NvmlError, answer, returned_within, session
from pybench.model.errors import MachineError, UsageError
from pybench.power.sensor import sensor_model
from pybench.power.trace import MISSING, PLANES, GpuTrace, OffsetColumns, PowerTrace

# Importing pybench must work where the extension was never built; the reason is reported when a recorder is started.
_nvml: ModuleType | None = None
if (_FAULT := extension_fault("_nvml")) is None:
    from pybench import _nvml

# A reading costs milliseconds of CPU time; between the ends that matter it only keeps the counter's grid known.
COUNTER_PERIOD_S = 60.0
MIN_COUNTER_PERIOD_S = 0.001
# Period of the power fields with a series; they then only give the newest power.
POLLED_PERIOD_S = 1.0
MIN_POLLED_PERIOD_S = 0.1
START_LIMIT_S = 10.0
# Size of one GPU's recording: ten hours of all readings of an H200.
MOST_BYTES = 32 * 2**20
# Beyond any time on CLOCK_MONOTONIC.
END_OF_TIME_NS = 2**63 - 1


def sampler_unavailable_reason() -> str | None:
    """Why no power can be sampled here, ``None`` when it can; a driver is given ``START_LIMIT_S`` to answer."""
    if _nvml is None:
        return f"{_FAULT}; {REMEDY}"
    try:
        reasons = returned_within(START_LIMIT_S, _no_gpu_reason)
    except NvmlError as error:
        return str(error)
    return reasons[0] if reasons else f"the NVIDIA driver has not answered for {START_LIMIT_S:g} s"


def _no_gpu_reason() -> str | None:
    """Why no GPU answers, ``None`` when one does. Raises ``NvmlError`` without a driver."""
    reason = "the NVIDIA driver shows no GPU"
    with session():
        for index in range(answer("DeviceGetCount")):
            try:
                answer("DeviceGetUUID", answer("DeviceGetHandleByIndex", index))
            except NvmlError as error:
                reason = f"no GPU answers: {error}"
            else:
                return None
    return reason


class PowerRecorder:
    """Records the GPUs named by UUID, from :meth:`start` to :meth:`stop`; usable from several threads.

    The energy counter is read around its steps at start, stop, :meth:`snapshot` and :meth:`anchor`.

    Args:
        uuids: the GPUs.
        counter_period_s: period of further readings of the counter, at least 1 ms; else ``ValueError``.
        polled_period_s: period of the power fields with a series of samples less than 0.1 s apart, at least 0.1 s; else
            ``ValueError``. Without a series it is 0.1 s.
        start_limit_s: ``start`` gives up on a driver that does not answer in this time.
        most_bytes: size of one GPU's recording. Beyond it, the older half keeps only readings near an anchor, and
            finally none.
    """

    def __init__(
        self,
        uuids: Sequence[str],
        *,
        counter_period_s: float = COUNTER_PERIOD_S,
        polled_period_s: float = POLLED_PERIOD_S,
        start_limit_s: float = START_LIMIT_S,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        for name, period_s, shortest_s in (
            ("counter_period_s", counter_period_s, MIN_COUNTER_PERIOD_S),
            ("polled_period_s", polled_period_s, MIN_POLLED_PERIOD_S),
        ):
            if not period_s >= shortest_s:
                raise ValueError(f"{name}: {period_s} is under {shortest_s}, the shortest")
        self._uuids = tuple(uuids)
        self._settings = {
            "counter_period_ns": round(counter_period_s * 1e9),
            "polled_period_ns": round(polled_period_s * 1e9),
            "start_limit_ns": round(start_limit_s * 1e9),
            "most_bytes": most_bytes,
        }
        self._native: Any = None

    def start(self) -> None:
        """Open NVML and begin. A GPU that can't be opened has a state in the trace that names the reason.

        Raises ``MachineError`` when there is no such GPU or no thread can be started, ``UsageError`` while it records.
        """
        if self._native is not None:
            raise UsageError("power sampler: it records already; stop it before it starts again")
        if _nvml is None:
            raise MachineError(f"power sampler: {_FAULT}; {REMEDY}")
        native = _nvml.Recorder(self._uuids, **self._settings)
        try:
            native.start()
        except RuntimeError as error:
            raise MachineError(f"power sampler: {error}") from error
        self._native = native

    def stop(self) -> PowerTrace:
        """End within a second (standstills of the machine do not count) and return the trace without a copy.

        A GPU whose driver call hangs is ``stalled`` and keeps what was recorded before. Raises ``MachineError`` when
        not started, or in a process forked from the one that started it.
        """
        native, self._native = self._native, None
        return _trace(_answer(native, "stop"))

    def snapshot(self, since_ns: int = 0, *, search: bool = True, until_ns: int = END_OF_TIME_NS) -> PowerTrace:
        """Copy what was recorded between two times on CLOCK_MONOTONIC, within half a second, and go on.

        With ``search`` the counter is first read until it steps and the series drained, so that a window that has ended
        is covered. The counter's readings up to the second are all copied. Raises as :meth:`stop`.
        """
        return _trace(_answer(self._native, "snapshot", since_ns, search, until_ns))

    @property
    def is_running(self) -> bool:
        """Whether :meth:`start` was called and :meth:`stop` not yet."""
        return self._native is not None

    def anchor(self) -> None:
        """Have every energy counter read where it steps next, and return at once: an end of a window is now.

        Costs two to five readings a GPU. Raises as :meth:`stop`.
        """
        _answer(self._native, "anchor")

    def latest_power_w(self) -> dict[str, float | None]:
        """Newest power of each GPU in W, ``None`` where unknown. Raises ``MachineError`` in a forked process."""
        latest = [MISSING] * len(self._uuids) if self._native is None else _answer(self._native, "latest_power_mw")
        return {uuid: None if mw == MISSING else mw / 1000 for uuid, mw in zip(self._uuids, latest, strict=True)}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._native is not None:
            self.stop()


def _trace(values: dict[str, Any]) -> PowerTrace:
    """A trace from the extension's dictionaries of columns: the offsets, and the planes of each GPU."""
    gpus = []
    for gpu in values["gpus"]:
        planes = {plane: kind(**gpu[plane]) for plane, kind in PLANES.items()}
        sensor = sensor_model(gpu["name"], values["driver"], gpu["uuid"])
        gpus.append(GpuTrace(**{**gpu, "capabilities": tuple(gpu["capabilities"]), "sensor": sensor, **planes}))
    return PowerTrace(**{**values, "offsets": OffsetColumns(**values["offsets"]), "gpus": tuple(gpus)})


def _answer(native: Any, method: str, *arguments: object) -> Any:  # noqa: ANN401 - the extension's sampler and what it hands over
    if native is None:
        raise MachineError(f"power sampler: {method} without being started")
    try:
        return getattr(native, method)(*arguments)
    except RuntimeError as error:
        raise MachineError(f"power sampler: {error}") from error
