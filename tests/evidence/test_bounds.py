"""Verify ends soon and within little memory, whatever somebody put into a run's files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pybench.evidence import events, reports, verify
from pybench.evidence.verify import verify_folder
from pybench.files.json_values import decode_json
from pybench.model.manifest import Manifest
from pybench.model.wire import Failure
from pybench.model.workloads.generate import Generate
from tests.evidence.forgery import Forgery

FIRST = "decode[tensor_parallel=1], attempt 1"
ORDERS = "attempts/decode_tensor_parallel=1.1/exchange/orders.jsonl"


def named(forgery: Forgery, original: Path) -> list[str]:
    """What does not hold, with its place."""
    found = verify_folder(forgery.path, original.parents[1] / "drill.toml")
    return [f"{each.place}: {each.text}" for each in found.discrepancies if each.state == "does not hold"]


def _degree(manifest: Manifest, degree: int) -> Manifest:
    first, *rest = manifest.plan.points
    assert isinstance(first.settings, Generate)
    wide = replace(first, settings=replace(first.settings, tensor_parallel=degree))
    return replace(manifest, plan=replace(manifest.plan, points=(wide, *rest)))


def _rewritten(forgery: Forgery, degree: int) -> None:
    """Reports stay as they were: none can be made of it."""
    forgery.folder.write_manifest(_degree(forgery.folder.read_manifest(), degree))
    records = [
        replace(record, point_digest=forgery.folder.read_manifest().plan.points[0].digest)
        if record.point_id.endswith("=1]")
        else record
        for record in forgery.records
    ]
    (forgery.path / "journal.jsonl").write_bytes(b"")
    for record in records:
        forgery.folder.journal.append(record)


def test_a_degree_beyond_any_machine(forgery: Forgery, original: Path) -> None:
    """It is refused with the manifest, before anything counts to it."""
    forgery.folder.write_manifest(_degree(forgery.folder.read_manifest(), 2**62))
    (only,) = named(forgery, original)
    assert "settings.tensor_parallel: 4611686018427387904 is above 1024, the most that a suite may have" in only


def test_other_ranks_than_the_plan_has(forgery: Forgery, original: Path) -> None:
    """No stream is followed for a rank that no record has."""
    _rewritten(forgery, 1024)
    assert f"{FIRST}: 1 ranks are recorded, the plan has 1024" in named(forgery, original)


def test_more_ranks_and_attempts_than_a_process_has(
    forgery: Forgery, original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failed attempts may lack ranks, and so say nothing about their number."""
    forgery.record(0, lambda r: replace(r, failure=Failure(cause="exception", message="x"), ranks=()))
    monkeypatch.setattr(events, "_MOST_LOGS", 0)
    text = f"{FIRST}: the plan has 1 ranks for each of 1 attempts, more than any worker process has"
    assert text in named(forgery, original)


def test_orders_that_no_attempt_reached_are_not_read(
    forgery: Forgery, original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty MiB of them took three GB."""
    read: list[bytes] = []

    def watched(line: bytes) -> object:
        read.append(line)
        return decode_json(line)

    monkeypatch.setattr(events, "decode_json", watched)
    file = forgery.path / ORDERS
    file.write_bytes(file.read_bytes() + b"[]\n" * 1000)
    assert named(forgery, original) == []
    assert len(read) == len(forgery.records)
    assert b"[]" not in read


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda whole: b"\n" + whole, "orders cannot be read: not JSON"),
        (lambda whole: whole.rstrip(b"\n"), None),
        (lambda whole: whole + b" " * 2**17, "orders cannot be read: Larger than 131072 bytes"),
    ],
)
def test_orders_as_they_stand(
    forgery: Forgery,
    original: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[bytes], bytes],
    message: str | None,
) -> None:
    """The last line needs no end; none is left out."""
    monkeypatch.setattr(events, "_MAX_ORDERS_BYTES", 2**17)
    (forgery.path / ORDERS).write_bytes(change((forgery.path / ORDERS).read_bytes()))
    found = named(forgery, original)
    assert found == [] if message is None else message in found[0]


@pytest.mark.parametrize(
    ("name", "unit"), [("results.json", b"[],"), ("report.html", b"1 "), ("summary.md", b"1 "), ("junit.xml", b"1 ")]
)
def test_a_report_many_times_as_long(
    forgery: Forgery, original: Path, monkeypatch: pytest.MonkeyPatch, name: str, unit: bytes
) -> None:
    """It is not taken apart: that takes many times its bytes."""

    def taken_apart(*_arguments: object) -> None:
        raise AssertionError("was taken apart")

    file = forgery.path / name
    file.write_bytes(unit * (4 * file.stat().st_size + 2**21))
    if name == "results.json":
        monkeypatch.setattr(reports, "_figures", taken_apart)
    else:
        monkeypatch.setattr(reports, "_unpacked", lambda text: text if len(text) < 2**21 else taken_apart())
    (only,) = named(forgery, original)
    assert only.startswith(f"{name}: more than ")
    assert only.endswith(": it was edited")


def test_a_results_file_that_is_a_little_longer_is_named_in_detail(forgery: Forgery, original: Path) -> None:
    """As before: which figure is another one."""
    forgery.results(lambda results: results.update(note="x" * 2**19))
    assert any("note" in text for text in named(forgery, original))


def test_a_name_that_cannot_be_hashed(forgery: Forgery, original: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify ends with what it found."""

    def fails(point_id: str, _number: int) -> str:
        return point_id.encode("ascii").decode() + json.dumps("\ud800".encode().decode())

    monkeypatch.setattr(verify, "attempt_name", fails)
    assert any(text.startswith("attempts: cannot be checked: UnicodeEncodeError") for text in named(forgery, original))


def test_half_a_character_in_the_journal(forgery: Forgery, original: Path) -> None:
    """It ended verify with an internal error."""
    file = forgery.path / "journal.jsonl"
    file.write_bytes(forged(file.read_bytes().splitlines()))
    (only,) = named(forgery, original)
    assert "journal.jsonl:1: point_id: holds half a character (a lone surrogate), which no text has" in only


def forged(lines: list[bytes]) -> bytes:
    """The first record is of a point whose id cannot be UTF-8; checksums fit."""
    out = b""
    for number, line in enumerate(lines, start=1):
        record = json.loads(line)["record"]
        body = json.dumps({**record, "point_id": "\ud800"} if number == 1 else record).encode()
        checksum = hashlib.sha256(b"%d:%s" % (number, body)).hexdigest()[:16].encode()
        out += b'{"sequence": %d, "checksum": "%s", "record": %s}\n' % (number, checksum, body)
    return out
