"""A power trace as a file: one compressed ``.npz`` of a JSON description and one array for each column.

A trace in a run's folder may come from somebody else, so its size is checked before it is unpacked, then every type,
length, range and order.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
import zlib
from dataclasses import asdict, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from pybench.files.reader import DAMAGED, check_version, first_fault, object_reader
from pybench.files.safe_folder import opened_folder, read_below, write_file
from pybench.model.errors import RunFolderError, fault_text
from pybench.power.trace import (
    MISSING,
    PLANES,
    TRACE_VERSION,
    CounterColumns,
    OffsetColumns,
    PowerTrace,
    SeriesColumns,
    StallColumns,
)

# Eight GPUs fill 0.8 GiB in the 24 hours that an attempt lasts at most.
MAX_BYTES = 2**30
_DESCRIPTION, _TRACE = "description", "trace"
_MAX_DESCRIPTION_BYTES = 2**22
_MIN_SENSOR_SPAN_S = 1e-6
_MAX_SENSOR_SPAN_S = 60.0
# Sums and differences of times and counts stay within 64 bits.
_LIMIT = 2**62
# Columns of which each row is at least the row before; stamps of a series are the driver's own.
_ORDERED = {kind: fields(kind)[0].name for kind in (*PLANES.values(), OffsetColumns) if kind is not SeriesColumns}
# Columns of one row: the first is at most the second.
_SPANS = {CounterColumns: ("before_ns", "after_ns"), StallColumns: ("start_ns", "end_ns")}
# A sum since the driver loaded takes all 64 bits; two clocks differ by either sign, and one is set either way.
_UNSIGNED, _SIGNED = "energy_mj", {"realtime_offset_ns", "set_by_ns"}


def write_trace(trace: PowerTrace, path: Path) -> None:
    """Write ``trace`` to ``path`` whole, replacing what is there. Raises ``OSError``."""
    data = encode_trace(trace)
    with opened_folder(path.parent) as folder:
        write_file(folder, path.name, data)


def encode_trace(trace: PowerTrace) -> bytes:
    """Content of a trace's file."""
    columns = _arrays("offsets", trace.offsets)
    gpus = []
    for i, gpu in enumerate(trace.gpus):
        described = {name: value for name, value in vars(gpu).items() if name not in PLANES}
        gpus.append({**described, "sensor": None if gpu.sensor is None else asdict(gpu.sensor)})
        for plane in PLANES:
            columns |= _arrays(f"{i}.{plane}", getattr(gpu, plane))
    head = {name: value for name, value in vars(trace).items() if name not in {"gpus", "offsets"}}
    description = json.dumps({"version": TRACE_VERSION, "trace": head, "gpus": gpus})
    file = io.BytesIO()
    np.savez_compressed(file, description=np.array(description), **columns)
    return file.getvalue()


def _arrays(prefix: str, plane: object) -> dict[str, Any]:
    return {f"{prefix}.{name}": np.asarray(values, dtype=_dtype(name)) for name, values in vars(plane).items()}


def _dtype(column: str) -> np.dtype[np.generic]:
    return np.dtype("<u8" if column == _UNSIGNED else "<i8")


def read_trace(folder: Path, name: str) -> PowerTrace:
    """Read the file ``name``, a path below ``folder``.

    Raises ``RunFolderError``, which names the file, where it is absent, damaged or of another version.
    """
    path = folder / name
    try:
        data = read_below(folder, name, MAX_BYTES)
    except OSError as error:
        raise RunFolderError(f"{path}: cannot read the power trace: {fault_text(error)}") from error
    try:
        return _decoded(unpack(data, MAX_BYTES), path)
    except ValueError as error:
        raise RunFolderError(f"{path}: not a power trace: {error}; {DAMAGED}") from error


def _decoded(arrays: dict[str, Array], path: Path) -> PowerTrace:
    """Raises ``RunFolderError`` for another version, ``RunFolderError`` or ``ValueError`` for bad content."""
    description = arrays.pop(_DESCRIPTION, None)
    if description is None or description.dtype.kind != "U" or description.nbytes > _MAX_DESCRIPTION_BYTES:
        raise ValueError("its description is missing, no text, or too long")
    trace = _described(description.tobytes().decode("utf-32-le"), path)
    gpus = tuple(
        replace(gpu, **{plane: _plane(f"{i}.{plane}", kind, arrays) for plane, kind in PLANES.items()})
        for i, gpu in enumerate(trace.gpus)
    )
    offsets = _plane("offsets", OffsetColumns, arrays)
    _require(not arrays, f"{min(arrays, default='')[:80]!r} is no column of its GPUs")
    return replace(trace, gpus=gpus, offsets=offsets)


def _described(text: str, path: Path) -> PowerTrace:
    """The trace without its columns."""
    try:
        values = json.loads(text)
    except RecursionError as error:
        raise ValueError(f"its description: {error}") from error
    check_version(f"{path}", values, TRACE_VERSION)
    _require(isinstance(values.get(_TRACE), dict), "its description lacks the trace")
    whole = json.dumps({_TRACE: {**values[_TRACE], "gpus": values.get("gpus")}})
    try:
        described = _validator().validate_json(whole)
    except ValidationError as error:
        raise RunFolderError(f"{path}: {first_fault(error)}; {DAMAGED}") from error
    trace: PowerTrace = getattr(described, _TRACE)
    _check_description(trace)
    return trace


_validator = cache(lambda: object_reader("trace_file", [(_TRACE, PowerTrace)]))
"""Made once it is needed."""


def _check_description(trace: PowerTrace) -> None:
    _require(0 <= trace.start_ns <= trace.end_ns < _LIMIT, "start_ns to end_ns is no span of time")
    uuids = [gpu.uuid for gpu in trace.gpus]
    _require(len(set(uuids)) == len(uuids), "two GPUs have one UUID")
    for i, gpu in enumerate(trace.gpus):
        counts = (gpu.index or 0, gpu.failed_calls, gpu.missed_ticks, gpu.dropped_records)
        _require(all(0 <= count < _LIMIT for count in counts), f"gpus.{i}: a count is out of range")
        if (sensor := gpu.sensor) is not None:
            spans_s = (sensor.period_s, sensor.window_s, sensor.average_span_s)
            times_s = (sensor.tau_s, sensor.tau_sigma_s, sensor.lag_high_s - sensor.lag_low_s, abs(sensor.lag_low_s))
            is_possible = all(each >= _MIN_SENSOR_SPAN_S for each in spans_s) and all(each >= 0 for each in times_s)
            is_possible = is_possible and all(each <= _MAX_SENSOR_SPAN_S for each in (*spans_s, *times_s))
            _require(is_possible, f"gpus.{i}.sensor: a time is out of range")


def _plane(prefix: str, kind: type, arrays: dict[str, Array]) -> Any:  # noqa: ANN401 - of ``kind``
    """One plane, its columns taken out of ``arrays``."""
    columns: dict[str, Array] = {}
    for name in (field.name for field in fields(kind)):
        column = arrays.pop(f"{prefix}.{name}", None)
        if column is None or column.dtype != _dtype(name) or column.ndim != 1:
            raise ValueError(f"{prefix}.{name}: is missing, or no column of {_dtype(name).name}")
        lowest = -_LIMIT if name in _SIGNED else MISSING
        in_range = name == _UNSIGNED or not len(column) or (lowest <= column.min() and column.max() < _LIMIT)
        _require(in_range, f"{prefix}.{name}: is out of range")
        columns[name] = column
    _require(len({len(column) for column in columns.values()}) == 1, f"{prefix}: columns differ in length")
    if name := _ORDERED.get(kind, ""):
        _require(np.less_equal(columns[name][:-1], columns[name][1:]).all(), f"{prefix}.{name}: goes backwards")
    if span := _SPANS.get(kind):
        _require(np.less_equal(*(columns[end] for end in span)).all(), f"{prefix}.{span[1]}: lies before {span[0]}")
    return kind(**columns)


def _require(held: object, problem: str) -> None:
    if not held:
        raise ValueError(problem)


Array = npt.NDArray[np.generic]

# A column of 64-bit integers, or one text.
_HEAD = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '(<i8|<u8|<U\d{1,9})', "
    rb"'fortran_order': False, 'shape': \((?:(\d{1,12}),)?\), \} *\n",
    re.DOTALL,
)
# The end of a zip file without a comment, whose directory has a size in 32 bits.
_END = re.compile(rb"PK\x05\x06.{8}(....).{4}\x00\x00", re.DOTALL)
_END_BYTES = 22
_LARGE_END, _LARGE_END_BYTES = b"PK\x06\x07", 20
_MAX_DIRECTORY_BYTES = 2**23


def unpack(data: bytes, max_bytes: int) -> dict[str, Array]:
    """Arrays by name: columns of 64-bit integers, and texts of no dimension, at most ``max_bytes`` together.

    Raises ``ValueError`` for anything else.
    """
    # Whoever opens a zip file reads its directory whole.
    end = _END.fullmatch(data[-_END_BYTES:])
    if end is None or data[-_END_BYTES - _LARGE_END_BYTES :].startswith(_LARGE_END):
        raise ValueError("does not end as a zip file")
    if int.from_bytes(end[1], "little") > _MAX_DIRECTORY_BYTES:
        raise ValueError(f"has a directory of more than {_MAX_DIRECTORY_BYTES} bytes")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members: dict[str, zipfile.ZipInfo] = {}
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                if name in members:
                    raise ValueError(f"has {name[:80]!r} twice")
                members[name] = member
            if sum(member.file_size for member in members.values()) > max_bytes:
                raise ValueError(f"unpacks to more than {max_bytes} bytes")
            arrays = {}
            for name, member in members.items():
                with archive.open(member) as stream:
                    # Read without a limit, a member unpacks to more than it declares.
                    arrays[name] = _array(name, stream.read(member.file_size))
            return arrays
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error) as error:
        raise ValueError(str(error)) from error


def _array(name: str, content: bytes) -> Array:
    head = _HEAD.match(content)
    if head is None:
        raise ValueError(f"{name[:80]!r} is no column of integers and no text")
    kind, length = np.dtype(head[1].decode()), head[2]
    if len(content) - head.end() != kind.itemsize * int(length or 1):
        raise ValueError(f"{name[:80]!r} is cut short or goes on after its end")
    array = np.frombuffer(content, kind, offset=head.end())
    return array if length else array.reshape(())
