"""Images of a registry as squashfs files, held against the digest of the lock."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from pathlib import Path

from pybench.machine.command import run_command
from pybench.model.errors import MachineError
from pybench.run.engines.enroot.launcher import import_argv
from pybench.run.engines.error import engine_error
from pybench.run.images.registry import RegistryManifest, fetch_manifest, registry_tool
from pybench.run.images.selection import this_platform

# Unpacking 10 GB and writing them as one file takes minutes, on a slow disk many.
_IMPORT_LIMIT_S = 7200.0
_BLOB = re.compile(r"[0-9a-f]{64}")
_SCHEME = "sha256:"


def import_image(reference: str, file: Path) -> None:
    """Write the image ``repository@sha256:…`` to ``file``. Raises ``MachineError``.

    Enroot holds every blob against its digest, but not the manifest that names the blobs: what it fetched is held
    against a manifest whose bytes have the locked digest.
    """
    manifest = _manifest(reference)
    blobs, layers = _emptied(file.with_suffix(".blobs")), _emptied(_layers(file))
    try:
        exact = f"{reference.rpartition('@')[0]}@{manifest.digest}"
        answer = run_command(import_argv(exact, blobs, layers, file), _IMPORT_LIMIT_S)
        if not answer.ok:
            failed = f"can't make an image file of {reference}"
            words = answer.error_line.removeprefix("[ERROR] ")
            raise engine_error("enroot", str(file.parent), failed, words, _remedy(words))
        _require_blobs(reference, manifest, blobs)
    finally:
        for folder in (blobs, layers):
            shutil.rmtree(folder, ignore_errors=True)


def _layers(file: Path) -> Path:
    """Where enroot unpacks: on a disk of this host, by a name that the next import to ``file`` finds again."""
    folder = os.environ.get("ENROOT_TEMP_PATH") or tempfile.gettempdir()
    return Path(folder) / f"pybench-enroot-{os.getuid()}-{hashlib.sha256(os.fsencode(file)).hexdigest()[:16]}"


def _emptied(folder: Path) -> Path:
    """A new folder in place of what a killed process left. Raises ``MachineError``."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        raise MachineError(f"{folder} is there and can't be removed; remove it") from None
    return folder


def _manifest(reference: str) -> RegistryManifest:
    """The manifest of this platform, whose digest or whose index's digest is the reference's."""
    repository, _, digest = reference.rpartition("@")
    tool = registry_tool()
    found = fetch_manifest(tool, reference)
    _require_digest(reference, digest, found.digest)
    if found.config is not None:
        return found
    own = found.platforms.get(this_platform())
    if own is None:
        raise MachineError(f"{reference} has no image for {this_platform()}; lock another: pybench images lock")
    image = fetch_manifest(tool, f"{repository}@{own}")
    _require_digest(f"{repository}@{own}", own, image.digest)
    return image


def _require_digest(reference: str, digest: str, served: str) -> None:
    if served != digest:
        raise MachineError(f"the registry serves {served} as {reference}; do not use it until that is explained")


def _require_blobs(reference: str, manifest: RegistryManifest, blobs: Path) -> None:
    """Raises ``MachineError`` where enroot fetched other blobs than ``manifest`` names."""
    fetched = {f"{_SCHEME}{path.name}" for path in blobs.iterdir() if _BLOB.fullmatch(path.name)}
    if fetched != {manifest.config, *manifest.layers}:
        raise MachineError(
            f"enroot received another manifest as {reference} than the one with that digest; do not use the registry "
            "until that is explained"
        )


def _remedy(words: str) -> str:
    if "not permitted" in words:
        return "install enroot+caps, or make the file on a host that shares this folder"
    if found := re.search(r"Command not found: (\S+)", words):
        return f"install {found[1]}"
    return ""
