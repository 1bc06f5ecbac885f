"""Untrusted files: a few of their bytes decide neither memory nor time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pybench.files.reader import MAX_VALUES, decode_json
from pybench.files.run.folder import RunFolder
from pybench.files.run.journal import decode_line, encode_line
from pybench.files.run.results_file import read_results
from pybench.model.errors import RunFolderError
from pybench.model.record import Record
from pybench.model.wire import Span, Step, Work
from tests.builders import HEADER, MANIFEST, RECORD, RESULTS
from tests.nodes import Node

# An error takes more than a kilobyte; a class has fewer fields than that.
_MANY, _FEW = 10_000, 50


def sealed(record: dict[str, Any]) -> bytes:
    """A line of a journal with a checksum that fits."""
    body = json.dumps(record).encode()
    checksum = hashlib.sha256(b"1:" + body).hexdigest()[:16].encode()
    return b'{"sequence": 1, "checksum": "%s", "record": %s}' % (checksum, body)


def read(kind: str, folder: Path, changed: dict[str, object]) -> None:
    """A file of a kind with other values."""
    if kind == "line":
        decode_line(folder, 1, sealed({**json.loads(encode_line(RECORD_OF_ONE, 1))["record"], **changed}))
    elif kind == "results":
        (folder / "results.json").write_text(json.dumps({**asdict(RESULTS), **changed}))
        read_results(folder / "results.json")
    else:
        run = RunFolder(folder)
        run.write_manifest(MANIFEST)
        values = {**json.loads((folder / "manifest.json").read_text()), **changed}
        del values["checksum"]
        body = json.dumps(values, indent=1).encode()[1:] + b"\n"
        checksum = hashlib.sha256(body).hexdigest()[:16].encode()
        (folder / "manifest.json").write_bytes(b'{\n "checksum": "%s",' % checksum + body)
        run.read_manifest()


RECORD_OF_ONE = Node(num_attempts=1, num_gpus=1).records[0]


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("results", {"points": [1] * _MANY}),
        ("results", {"machine_fields": dict.fromkeys(map(str, range(_MANY)), 1)}),
        ("manifest", {"plan": {"points": [1] * _MANY, "skips": []}}),
        ("manifest", {"environment": dict.fromkeys(map(str, range(_MANY)), 1)}),
        ("line", {"ranks": [1] * _MANY}),
        ("line", {"argv": [1] * _MANY}),
    ],
)
def test_one_fault_is_found_and_not_one_an_element(tmp_path: Path, kind: str, changed: dict[str, object]) -> None:
    """With one an element, 4 MiB of a file take 2.9 GB."""
    with pytest.raises(RunFolderError, match="Input should be ") as caught:
        read(kind, tmp_path, changed)
    assert isinstance(caught.value.__cause__, ValidationError)
    assert caught.value.__cause__.error_count() < _FEW


@pytest.mark.parametrize("unit", [b"1,", b"[],", b"{},", b'"",'])
def test_more_values_than_any_file_has(unit: bytes) -> None:
    """By brackets and commas, before they become eighty bytes each."""
    with pytest.raises(ValueError, match=f"more than {MAX_VALUES} values, which no file of pybench has"):
        decode_json(b"[%s1]" % (unit * MAX_VALUES))


def test_as_many_values_as_may_be() -> None:
    """A limit that is not reached is none."""
    assert len(decode_json(b"[%s1]" % (b"1," * (MAX_VALUES - 1)))) == MAX_VALUES


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (rb'{"a": ["x", "\ud800"]}', r"^a\.1: holds half a character"),
        (rb'{"a": "\uDC00\ud83d"}', r"^a: holds half a character"),
        (rb'{"a": {"\udfff": 1}}', r"^'a\.\\udfff': holds half a character"),
    ],
)
def test_half_a_character_is_no_text(text: bytes, message: str) -> None:
    """It can be neither printed, hashed nor written: one name with it ended a whole history."""
    with pytest.raises(ValueError, match=message):
        decode_json(text)


def test_whole_characters_are_text() -> None:
    """Escaped as two halves, as Python's json writes them."""
    assert decode_json(json.dumps({"\U0001f600": "\U0001f600"}).encode()) == {"\U0001f600": "\U0001f600"}


def test_what_is_nested_deeper_than_can_be_looked_through() -> None:
    """An error with the reason, wherever the stack ends."""
    for depth in range(850, 1000, 5):
        with pytest.raises(ValueError, match=r"not JSON: maximum recursion|larger than any measurement"):
            decode_json(b"[" * depth + b"9" * 30 + b"]" * depth)


def _steps(*steps: Step) -> Record:
    (rank,) = RECORD_OF_ONE.ranks
    return replace(RECORD_OF_ONE, ranks=(replace(rank, header=HEADER, steps=steps),))


STEP = Step(index=0, phase="measure", start_ns=5, end_ns=9, work=Work())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: replace(RECORD_OF_ONE, started_utc="x"), r":1: started_utc: 'x' is no ISO 8601 time; the file"),
        (lambda: replace(RECORD_OF_ONE, started_utc=""), r":1: started_utc: '' is no ISO 8601 time"),
        (lambda: replace(RECORD_OF_ONE, started_utc="9999-12-31T23:59:59-23:59"), r":1: started_utc: '9999"),
        (
            lambda: _steps(STEP, replace(STEP, end_ns=4)),
            r":1: ranks\.0\.steps\.1: its times are negative, go backwards, or have no length",
        ),
        (lambda: _steps(replace(STEP, start_ns=-1)), r":1: ranks\.0\.steps\.0: its times are negative"),
        (
            lambda: _steps(replace(STEP, spans=(Span(name="a", start_ns=5, end_ns=-(2**63)),))),
            r":1: ranks\.0\.steps\.0\.spans\.0: its times are negative",
        ),
    ],
)
def test_times_that_no_attempt_has(change: Callable[[], Record], message: str) -> None:
    """Also of a failed one: reports show when its steps were."""
    line = encode_line(change(), 1)[:-1]
    with pytest.raises(RunFolderError, match=message):
        decode_line(Path("journal.jsonl"), 1, line)


@pytest.mark.parametrize("number", [0, -1])
def test_attempts_count_from_1(number: int) -> None:
    """No other number is of an attempt that pybench makes."""
    line = encode_line(replace(RECORD_OF_ONE, attempt=number), 1)[:-1]
    with pytest.raises(RunFolderError, match=rf":1: attempt: {number} is no number of an attempt, which count from 1;"):
        decode_line(Path("journal.jsonl"), 1, line)


@pytest.mark.parametrize("key", ["attempt", "duration_s"])
def test_a_number_as_text_has_the_bounds_of_a_number(key: str) -> None:
    """A search for long runs of digits does not tell it from a name."""
    values = {**json.loads(encode_line(RECORD, 1))["record"], key: "9" * 70}
    with pytest.raises(RunFolderError, match=rf":1: {key}: Input should be less than or equal to "):
        decode_line(Path("journal.jsonl"), 1, sealed(values))
