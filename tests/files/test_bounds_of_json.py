"""Untrusted files: a few of their bytes decide neither memory nor time."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pybench.files.run.folder import RunFolder
from pybench.files.run.journal import decode_line, encode_line
from pybench.files.run.results_file import read_results
from pybench.model.errors import RunFolderError
from tests.builders import MANIFEST, RECORD, RESULTS
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


@pytest.mark.parametrize("key", ["attempt", "duration_s"])
def test_a_number_as_text_has_the_bounds_of_a_number(key: str) -> None:
    """A search for long runs of digits does not tell it from a name."""
    values = {**json.loads(encode_line(RECORD, 1))["record"], key: "9" * 70}
    with pytest.raises(RunFolderError, match=rf":1: {key}: Input should be less than or equal to "):
        decode_line(Path("journal.jsonl"), 1, sealed(values))
