"""One line of a journal: a record with its place in the file and a checksum, so that damage is found.

::

    {"sequence": 3, "checksum": "0a1b2c3d4e5f6071", "record": {...}}

The checksum is the first 8 bytes of SHA-256 over the place and the record's own bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pybench.files.json_values import decode_json
from pybench.files.reader import Reader, check_version, first_fault
from pybench.model.errors import RunFolderError
from pybench.model.record import RECORD_VERSION, Record

MAX_LINE_BYTES = 2**26
"""Over a hundred times the largest whole journal that suites of pybench have left."""
_RECORD = Reader(TypeAdapter(Record))
_HEAD = re.compile(rb'\{"sequence": ([1-9]\d{0,8}), "checksum": "([0-9a-f]{16})", "record": (?=\{)')


def encode_line(record: Record, sequence: int) -> bytes:
    """A line with its newline. Raises ``ValueError`` for a record that would not be read back as it is.

    Raises ``RunFolderError`` for one with more than a line may have.
    """
    body = json.dumps(asdict(record), allow_nan=False).encode()
    line = b'{"sequence": %d, "checksum": "%s", "record": %s}\n' % (sequence, _checksum(sequence, body), body)
    if len(line) > MAX_LINE_BYTES:
        what = f"{record.point_id}: its record has {len(line)} bytes, more than a journal keeps of an attempt"
        raise RunFolderError(f"{what}; give it fewer steps, or fewer requests a step")
    if _RECORD.read(decode_json(body)) != record:
        raise ValueError(f"{record.point_id}: the record would not be read back as it is")
    return line


def sequence_of(line: bytes) -> int:
    """Place that a line states, 0 without one."""
    head = _HEAD.match(line)
    return int(head[1]) if head else 0


def is_whole(line: bytes) -> bool:
    """Whether a line without its newline is what was once written."""
    head = _HEAD.match(line)
    return head is not None and line.endswith(b"}") and _checksum(int(head[1]), line[head.end() : -1]) == head[2]


def decode_line(path: Path, number: int, line: bytes) -> Record:
    """Read line ``number`` of the journal at ``path``. Raises ``RunFolderError``, which names the line."""
    if len(line) > MAX_LINE_BYTES:
        raise RunFolderError(f"{path}:{number}: longer than {MAX_LINE_BYTES} bytes; the journal was edited or damaged")
    head = _HEAD.match(line)
    if head is None:
        raise RunFolderError(f"{path}:{number}: {_unmarked(line)}")
    if not is_whole(line):
        raise RunFolderError(f"{path}:{number}: its checksum does not fit; the journal was edited or damaged")
    if int(head[1]) != number:
        raise RunFolderError(f"{path}:{number}: holds record {int(head[1])}; lines were added, removed or exchanged")
    try:
        values = decode_json(line[head.end() : -1])
    except ValueError as error:
        raise RunFolderError(f"{path}:{number}: {error}; the journal was edited or damaged") from error
    check_version(f"{path}:{number}", values, RECORD_VERSION)
    try:
        return _RECORD.read(values)
    except ValidationError as error:
        raise RunFolderError(f"{path}:{number}: {first_fault(error)}; the file was edited or damaged") from error


def _checksum(sequence: int, body: bytes) -> bytes:
    return hashlib.sha256(b"%d:%s" % (sequence, body)).hexdigest()[:16].encode()


def _unmarked(line: bytes) -> str:
    """Why a line without place and checksum is refused: another version's, or damaged."""
    try:
        values = decode_json(line)
    except ValueError as error:
        return f"{error}; the journal was edited or damaged"
    try:
        check_version("", values, RECORD_VERSION)
    except RunFolderError as error:
        return str(error).removeprefix(": ")
    return "no checksum; the journal was edited or damaged"
