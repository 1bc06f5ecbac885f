"""The manifest of a run as the bytes of its file: JSON, of which the first key is a checksum of all that follows it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pybench.files.json_values import decode_json, has_too_many
from pybench.files.reader import Reader, check_version, first_fault
from pybench.files.run.manifest_rules import breaches
from pybench.model.errors import RunFolderError
from pybench.model.manifest import MANIFEST_VERSION, Manifest

MAX_MANIFEST_BYTES = 2**26
"""Manifests of pybench's suites have some 50 kB, one of 4096 points some 16 MB."""
_MANIFEST = TypeAdapter(Manifest)
_READER = Reader(_MANIFEST)
_HEAD = b'{\n "checksum": "%s",'


def encode_manifest(manifest: Manifest, path: Path) -> bytes:
    """Content of the file at ``path``. Raises ``RunFolderError`` for one that would not be read back.

    Raises ``ValueError`` where a point would be read back as another one.
    """
    body = _MANIFEST.dump_json(manifest, indent=1)[1:] + b"\n"
    data = _HEAD % _digest(body) + body
    if len(data) > MAX_MANIFEST_BYTES or has_too_many(data):
        raise RunFolderError(f"{path.parent}: its plan is larger than a manifest may be; run parts of the suite (-k)")
    try:
        values = decode_json(data)
    except ValueError as error:
        raise RunFolderError(f"{path}: would not be read back: {error}; change it in the suite or its table") from error
    if _READER.read(values).plan.digests != manifest.plan.digests:
        raise ValueError(f"{path.parent}: a point of the manifest would not be read back as it is")
    return data


def decode_manifest(data: bytes, path: Path) -> Manifest:
    """The manifest in ``data``, read from ``path``. Raises ``RunFolderError`` when damaged or of another version."""
    try:
        values = decode_json(data)
    except ValueError as error:
        raise RunFolderError(f"{path}: {error}; the file was edited or damaged") from error
    check_version(f"{path}", values, MANIFEST_VERSION)
    head = len(_HEAD % _digest(b""))
    if data[:head] != _HEAD % _digest(data[head:]):
        raise RunFolderError(f"{path}: its checksum does not fit; the file was edited or damaged")
    try:
        manifest = _READER.read(values)
    except ValidationError as error:
        raise RunFolderError(f"{path}: {first_fault(error)}; the file was edited or damaged") from error
    for key, fault in breaches(manifest):
        raise RunFolderError(f"{path}: {key}: {fault}; the file was edited or damaged")
    return manifest


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest()[:16].encode()
