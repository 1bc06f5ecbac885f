"""A power trace as a file: one compressed ``.npz`` of a JSON description and one array for each column."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pybench.machine.trace_columns import PLANES, trace_from_columns
from pybench.model.errors import MachineError
from pybench.model.trace import TRACE_VERSION, PowerTrace


def write_trace(trace: PowerTrace, path: Path) -> None:
    """Write ``trace`` to ``path``, replacing what is there."""
    columns = _arrays("offsets", trace.offsets)
    gpus = []
    for i, gpu in enumerate(trace.gpus):
        described = {name: value for name, value in vars(gpu).items() if name not in PLANES}
        gpus.append({**described, "sensor": None if gpu.sensor is None else asdict(gpu.sensor)})
        for plane in PLANES:
            columns |= _arrays(f"{i}.{plane}", getattr(gpu, plane))
    head = {name: value for name, value in vars(trace).items() if name not in {"gpus", "offsets"}}
    description = json.dumps({"version": TRACE_VERSION, "trace": head, "gpus": gpus})
    with path.open("wb") as file:
        np.savez_compressed(file, description=np.array(description), **columns)


def read_trace(path: Path) -> PowerTrace:
    """Read what :func:`write_trace` wrote. Raises ``MachineError`` on another version."""
    with np.load(path, allow_pickle=False) as stored:
        described = json.loads(str(stored["description"]))
        if described["version"] != TRACE_VERSION:
            raise MachineError(
                f"{path}: trace version {described['version']}, this pybench reads {TRACE_VERSION}; "
                "read it with the pybench that wrote it"
            )
        columns = {name: stored[name] for name in stored.files if name != "description"}
    gpus = [
        {**gpu, **{plane: _columns(f"{i}.{plane}", columns) for plane in PLANES}}
        for i, gpu in enumerate(described["gpus"])
    ]
    return trace_from_columns({**described["trace"], "gpus": gpus, "offsets": _columns("offsets", columns)})


def _arrays(prefix: str, plane: object) -> dict[str, Any]:
    return {f"{prefix}.{name}": np.asarray(values, dtype=_dtype(name)) for name, values in vars(plane).items()}


def _columns(prefix: str, arrays: dict[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(f"{prefix}."): values for name, values in arrays.items() if name.startswith(f"{prefix}.")}


def _dtype(column: str) -> type[np.signedinteger[Any] | np.unsignedinteger[Any]]:
    return np.uint64 if column == "energy_mj" else np.int64
