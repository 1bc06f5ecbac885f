"""Trace files come back as they were written; whatever else one holds is refused by the file's name."""

from __future__ import annotations

import io
import json
import os
import random
import zipfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from pybench.model.errors import RunFolderError
from pybench.power import trace_file
from pybench.power.sensor import SensorModel
from pybench.power.trace import (
    CounterColumns,
    GpuTrace,
    OffsetColumns,
    PolledColumns,
    PowerTrace,
    SeriesColumns,
    SlowColumns,
    StallColumns,
)
from pybench.power.trace_file import encode_trace, read_trace, write_trace

PLANES: dict[str, Any] = {
    "counter": CounterColumns(before_ns=[1, 2], after_ns=[2, 3], energy_mj=[2**63 + 1, 2**63 + 2]),
    "series": SeriesColumns(realtime_ns=[5, 4], power_mw=[400_000, 1]),
    "polled": PolledColumns(t_ns=[1], instant_mw=[-1], average_mw=[7], memory_mw=[8]),
    "slow": SlowColumns(
        t_ns=[1],
        temperature_c=[55],
        sm_clock_mhz=[-1],
        memory_clock_mhz=[3201],
        gpu_utilization_percent=[9],
        clock_event_reasons=[4],
    ),
    "stalls": StallColumns(start_ns=[4], end_ns=[9]),
}
SENSOR = SensorModel(name="board", source="here", period_s=0.02, window_s=0.02)
GPU = GpuTrace(
    uuid="GPU-0",
    index=3,
    name="x",
    state="stalled",
    failed_calls=1,
    missed_ticks=2,
    dropped_records=3,
    capabilities=("counter", "series"),
    scope="module",
    mig=False,
    shared_board=True,
    sensor=SENSOR,
    **PLANES,
)
OFFSETS = OffsetColumns(t_ns=[1, 2], realtime_offset_ns=[10**18, 10**18 + 1], set_by_ns=[0, -(10**9)])
TRACE = PowerTrace(start_ns=1, end_ns=2, gpus=(GPU,), offsets=OFFSETS, boot_id="b", num_pollers=2)


def test_round_trip(tmp_path: Path) -> None:
    write_trace(TRACE, tmp_path / "power.npz")
    again = read_trace(tmp_path, "power.npz")
    bare = GpuTrace(uuid="", index=0, name="")
    stripped = {plane: getattr(bare, plane) for plane in PLANES}
    assert replace(again.gpus[0], **stripped) == replace(GPU, **stripped)
    assert replace(again, gpus=(), offsets=OffsetColumns()) == replace(TRACE, gpus=(), offsets=OffsetColumns())
    for field in fields(OFFSETS):
        np.testing.assert_array_equal(getattr(again.offsets, field.name), getattr(OFFSETS, field.name))
    for plane, written in PLANES.items():
        for field in fields(written):
            np.testing.assert_array_equal(
                getattr(getattr(again.gpus[0], plane), field.name), getattr(written, field.name)
            )


def test_empty_trace(tmp_path: Path) -> None:
    trace = PowerTrace(start_ns=1, end_ns=2, gpus=(GpuTrace(uuid="GPU-0", index=0, name="x", state="lost"),))
    write_trace(trace, tmp_path / "power.npz")
    again = read_trace(tmp_path, "power.npz")
    assert (again.start_ns, again.end_ns, again.gpus[0].state, again.boot_id) == (1, 2, "lost", None)
    assert len(again.gpus[0].counter.energy_mj) == 0


def test_other_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_file, "TRACE_VERSION", 7)
    write_trace(PowerTrace(start_ns=1, end_ns=2, gpus=()), tmp_path / "power.npz")
    monkeypatch.undo()
    with pytest.raises(RunFolderError, match=r"power\.npz: from a newer pybench \(version 7, this one reads 4\)"):
        read_trace(tmp_path, "power.npz")


def refusal(tmp_path: Path, content: bytes) -> str:
    """The fault of a trace's file with this content, after its name."""
    (tmp_path / "trace.npz").write_bytes(content)
    with pytest.raises(RunFolderError) as refused:
        read_trace(tmp_path, "trace.npz")
    where, _, problem = str(refused.value).partition("trace.npz: ")
    assert where == f"{tmp_path}/"
    return problem


def parts(content: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Description and columns of a trace's file."""
    with np.load(io.BytesIO(content)) as stored:
        arrays = {name: stored[name] for name in stored.files}
    return json.loads(str(arrays.pop("description"))), arrays


def put_together(description: object, arrays: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, description=np.array(json.dumps(description)), **arrays)
    return file.getvalue()


@pytest.mark.parametrize(
    ("plane", "columns", "problem"),
    [
        ("counter", {"after_ns": [0, 3]}, "0.counter.after_ns: lies before before_ns"),
        ("counter", {"before_ns": [2, 1]}, "0.counter.before_ns: goes backwards"),
        ("polled", {"t_ns": [1, 2]}, "0.polled: columns differ in length"),
        ("polled", {"instant_mw": [-2]}, "0.polled.instant_mw: is out of range"),
        ("slow", {"t_ns": [2**63 - 1]}, "0.slow.t_ns: is out of range"),
        ("stalls", {"end_ns": [3]}, "0.stalls.end_ns: lies before start_ns"),
    ],
)
def test_columns_are_ordered_and_in_range(
    tmp_path: Path, plane: str, columns: dict[str, list[int]], problem: str
) -> None:
    gpu = replace(GPU, **{plane: replace(PLANES[plane], **columns)})
    assert refusal(tmp_path, encode_trace(replace(TRACE, gpus=(gpu,)))).startswith(f"not a power trace: {problem}")


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        (np.array([1.5, 2.5]), "is no column of integers and no text"),
        (np.array([1, 2], dtype=np.int32), "is no column of integers and no text"),
        (np.array([[1, 2]]), "is no column of integers and no text"),
        (np.array(["1", "2"]), "is missing, or no column of int64"),
        (np.array([1, 2], dtype=np.uint64), "is missing, or no column of int64"),
        (np.array([{}, {}], dtype=object), "is no column of integers and no text"),
        (None, "is missing, or no column of int64"),
    ],
)
def test_columns_have_one_type(tmp_path: Path, column: object, problem: str) -> None:
    """Objects, which a pickle would make, are refused unread."""
    description, arrays = parts(encode_trace(TRACE))
    arrays.pop("0.counter.after_ns")
    changed = arrays if column is None else {**arrays, "0.counter.after_ns": column}
    assert problem in refusal(tmp_path, put_together(description, changed))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"start_ns": "1"}, "trace.start_ns: Input should be a valid integer"),
        ({"start_ns": 3}, "start_ns to end_ns is no span of time"),
        ({"end_ns": 10**30}, "start_ns to end_ns is no span of time"),
        ({"driver": None}, "trace.driver: Input should be a valid string"),
        ({"colour": 1}, "trace.colour: Unexpected keyword argument"),
    ],
)
def test_description_has_its_fields(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    description, arrays = parts(encode_trace(TRACE))
    description["trace"] |= change
    assert problem in refusal(tmp_path, put_together(description, arrays))


def test_a_description_is_refused_at_the_first_fault_of_a_list(tmp_path: Path) -> None:
    """An error takes more than a kilobyte, an element two bytes."""
    description, arrays = parts(encode_trace(TRACE))
    description["gpus"] = [1] * 10_000
    (tmp_path / "trace.npz").write_bytes(put_together(description, arrays))
    with pytest.raises(RunFolderError) as refused:
        read_trace(tmp_path, "trace.npz")
    assert isinstance(refused.value.__cause__, ValidationError)
    assert refused.value.__cause__.error_count() < 50


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"index": "0"}, "trace.gpus.0.index: Input should be a valid integer"),
        ({"state": "fine"}, "trace.gpus.0.state: Input should be 'ok'"),
        ({"missed_ticks": -1}, "gpus.0: a count is out of range"),
        (
            {"sensor": {"name": "a", "source": "b", "period_s": 0, "window_s": 1}},
            "gpus.0.sensor: a time is out of range",
        ),
        (
            {"sensor": {"name": "a", "source": "b", "period_s": 1e-9, "window_s": 1}},
            "gpus.0.sensor: a time is out of range",
        ),
        ({"sensor": {"name": "a", "source": "b", "period_s": float("nan"), "window_s": 1}}, "period_s"),
    ],
)
def test_gpus_have_their_fields(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    description, arrays = parts(encode_trace(TRACE))
    description["gpus"][0] |= change
    assert problem in refusal(tmp_path, put_together(description, arrays))


def test_gpus_and_columns_belong_together(tmp_path: Path) -> None:
    description, arrays = parts(encode_trace(TRACE))
    assert "'other' is no column of its GPUs" in refusal(
        tmp_path, put_together(description, {**arrays, "other": np.array([1])})
    )
    twice = {**description, "gpus": description["gpus"] * 2}
    assert "two GPUs have one UUID" in refusal(tmp_path, put_together(twice, arrays))
    assert "0.counter.before_ns: is missing" in refusal(tmp_path, put_together(description, {}))


@pytest.mark.parametrize("description", ["", 7, [], {}, {"version": 3}, {"version": 3, "trace": {}, "gpus": 7}])
def test_any_other_description_is_refused(tmp_path: Path, description: object) -> None:
    _, arrays = parts(encode_trace(TRACE))
    refusal(tmp_path, put_together(description, arrays))


def test_deep_description_is_refused(tmp_path: Path) -> None:
    _, arrays = parts(encode_trace(TRACE))
    file = io.BytesIO()
    np.savez_compressed(file, description=np.array("[" * 100_000), **arrays)
    assert refusal(tmp_path, file.getvalue()).startswith("not a power trace: its description: ")


def zip_of(**members: bytes) -> bytes:
    """A compressed archive of arrays with these contents."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def test_size_is_checked_before_unpacking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may unpack to a thousand times its size, and its arrays may announce more than it holds."""
    monkeypatch.setattr(trace_file, "MAX_BYTES", 10_000)
    assert "unpacks to more than 10000 bytes" in refusal(tmp_path, zip_of(a=bytes(10_001)))
    assert "Larger than 10000 bytes" in refusal(tmp_path, bytes(10_001))
    head = b"\x93NUMPY\x01\x00\x76\x00{'descr': '<i8', 'fortran_order': False, 'shape': (%d,), } \n"
    assert "'a' is cut short" in refusal(tmp_path, zip_of(a=head % 10**11))
    evaluated = b"\x93NUMPY\x01\x00\x76\x00__import__('os').abort() \n"
    assert "'a' is no column of integers" in refusal(tmp_path, zip_of(a=evaluated))


def test_member_unpacks_to_no_more_than_it_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes that were added up are those that are read."""
    content = bytearray(zip_of(a=bytes(1_000_000)))
    for place in (content.index(b"PK\x03\x04") + 22, content.index(b"PK\x01\x02") + 24):
        content[place : place + 4] = (8).to_bytes(4, "little")
    read: list[int] = []
    plain = zipfile.ZipExtFile.read

    def noted(self: zipfile.ZipExtFile, n: int | None = -1) -> bytes:
        read.append(-1 if n is None else n)
        return plain(self, n)

    monkeypatch.setattr(zipfile.ZipExtFile, "read", noted)
    with pytest.raises(ValueError, match="Bad CRC-32"):
        trace_file.unpack(bytes(content), 1000)
    assert read == [8]


def test_directory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_file, "_MAX_DIRECTORY_BYTES", 40)
    assert "a directory of more than 40 bytes" in refusal(tmp_path, encode_trace(TRACE))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_member_is_there_once(tmp_path: Path) -> None:
    file = io.BytesIO(encode_trace(TRACE))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("offsets.t_ns.npy", b"")
    assert "has 'offsets.t_ns' twice" in refusal(tmp_path, file.getvalue())


@pytest.mark.parametrize(
    "name", ["../trace.npz", "/etc/passwd", "a/../trace.npz", "", ".", "link.npz", "pipe.npz", "below/trace.npz"]
)
def test_nothing_outside_the_folder_is_read(tmp_path: Path, name: str) -> None:
    """The journal names the file, and the journal may be somebody else's."""
    folder = tmp_path / "run"
    folder.mkdir()
    write_trace(TRACE, tmp_path / "trace.npz")
    (folder / "link.npz").symlink_to(tmp_path / "trace.npz")
    (folder / "below").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe.npz")
    with pytest.raises(RunFolderError, match="cannot read the power trace"):
        read_trace(folder, name)


def test_writing_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "trace.npz").symlink_to(tmp_path / "victim")
    write_trace(TRACE, tmp_path / "trace.npz")
    assert (tmp_path / "victim").read_text() == "kept"
    assert read_trace(tmp_path, "trace.npz").end_ns == TRACE.end_ns


def test_changed_bytes_are_refused_or_harmless(tmp_path: Path) -> None:
    """Each of 600 files with one bit changed or cut short reads as written, or is refused by its name."""
    content = encode_trace(TRACE)
    dice = random.Random(3)
    refused = 0
    for _ in range(600):
        changed = bytearray(content)
        if dice.random() < 0.2:
            del changed[dice.randrange(len(changed)) :]
        else:
            changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
        (tmp_path / "trace.npz").write_bytes(changed)
        trace = read_or_refuse(tmp_path)
        refused += trace is None
        assert trace is None or encode_trace(trace) == content
    assert refused > 300


def read_or_refuse(folder: Path) -> PowerTrace | None:
    """The trace, ``None`` where it is refused by its name."""
    try:
        return read_trace(folder, "trace.npz")
    except RunFolderError as error:
        refusal = str(error)
    assert "trace.npz: " in refusal
    return None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = [("trace", name) for name in ("start_ns", "end_ns", "boot_id", "driver", "num_pollers")] + [
    (0, name) for name in ("uuid", "index", "state", "capabilities", "mig", "sensor", "failed_calls", "counter")
]


@settings(max_examples=100, deadline=None)
@given(
    field=st.sampled_from(FIELDS),
    value=JSON,
    name=st.sampled_from(sorted(parts(encode_trace(TRACE))[1])),
    numbers=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
)
def test_any_value_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, field: tuple[Any, str], value: object, name: str, numbers: list[int]
) -> None:
    description, arrays = parts(encode_trace(TRACE))
    holder = description["trace"] if field[0] == "trace" else description["gpus"][field[0]]
    holder[field[1]] = value
    arrays[name] = np.array(numbers, dtype=arrays[name].dtype if arrays[name].dtype == np.int64 else np.int64)
    folder = tmp_path_factory.mktemp("any")
    (folder / "trace.npz").write_bytes(put_together(description, arrays))
    trace = read_or_refuse(folder)
    assert trace is None or trace.start_ns <= trace.end_ns
