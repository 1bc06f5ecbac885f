"""Verify ends soon and within little memory, whatever somebody put into a run's files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

from pybench.model.manifest import Manifest
from pybench.model.workloads.generate import Generate
from tests.evidence.forgery import Forgery


def named(forgery: Forgery, original: Path) -> list[str]:
    """Discrepancies with their places."""
    verification = forgery.verified()
    return [f"{each.place}: {each.text}" for each in verification.discrepancies if each.state == "does not hold"]


def _degree(manifest: Manifest, degree: int) -> Manifest:
    first, *rest = manifest.plan.points
    assert isinstance(first.settings, Generate)
    wide = replace(first, settings=replace(first.settings, tensor_parallel=degree))
    return replace(manifest, plan=replace(manifest.plan, points=(wide, *rest)))


def test_a_degree_beyond_any_machine(forgery: Forgery, original: Path) -> None:
    """It is refused with the manifest, before anything counts to it."""
    forgery.folder.write_manifest(_degree(forgery.folder.read_manifest(), 2**62))
    (only,) = named(forgery, original)
    assert "settings.tensor_parallel: 4611686018427387904 is above 1024, the most that a suite may have" in only


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
