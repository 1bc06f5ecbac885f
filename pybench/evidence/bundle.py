"""Verifies a bundle: its signature, its digests, and the run inside of it, unpacked where nobody else looks."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from pybench.evidence.archive import BundleError, unpack_bundle
from pybench.evidence.signature import check_signature, signature_path
from pybench.evidence.values import Discrepancy, Verification
from pybench.evidence.verify import verify_folder
from pybench.model.errors import UsageError
from pybench.model.manifest import MANIFEST_FILE

_MAGIC = b"PK"
"""What every zip archive that a bundle may be begins with."""


def verify_bundle(file: Path, suite_file: Path | None = None, signers: Path | None = None) -> Verification:
    """Verify the bundle ``file``; with ``signers`` one of them must have signed it.

    Raises ``UsageError`` where there is no file, one that is no zip archive or no file of signers, and as
    :func:`verify_folder` for a suite file.
    """
    if not file.is_file():
        raise UsageError(f"{file}: no such file; verify takes a bundle or a run's folder")
    _require_archive(file)
    signature, faults = _signature(file, signers)
    with tempfile.TemporaryDirectory(prefix="pybench-verify-") as scratch:
        try:
            folder = unpack_bundle(file, Path(scratch))
        except BundleError as error:
            unreadable = Discrepancy(place=file.name, text=str(error).removeprefix(f"{file}: "))
            return Verification(run_id=file.name, discrepancies=(*faults, unreadable))
        found = verify_folder(folder, suite_file, bundled=True)
        if found.run_id != folder.name:
            renamed = Discrepancy(place=MANIFEST_FILE, text=f"is of run {found.run_id}, the bundle of {folder.name}")
            faults = (*faults, renamed)
    return replace(found, discrepancies=(*faults, *found.discrepancies), signature=signature)


def _require_archive(file: Path) -> None:
    """A file of another kind accuses no run."""
    try:
        with file.open("rb") as stream:
            begins = stream.read(len(_MAGIC))
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from error
    if begins != _MAGIC:
        evidence = "; a results.json has no evidence to check" if file.suffix == ".json" else ""
        raise UsageError(f"{file}: not a bundle; verify takes a bundle (.zip) or a run's folder{evidence}")


def _signature(file: Path, signers: Path | None) -> tuple[str | None, tuple[Discrepancy, ...]]:
    """A sentence about a good signature, and what is wrong with another one."""
    if signers is not None and not signers.is_file():
        raise UsageError(f"--signers {signers}: no such file")
    path = signature_path(file)
    if not path.is_file():
        missing = Discrepancy(place=path.name, text="not there: --signers names who should have signed the bundle")
        return None, (missing,) if signers is not None else ()
    good, sentence = check_signature(file, signers)
    if good:
        return sentence, ()
    return None, (Discrepancy(place=path.name, text=f"not a good signature: {sentence}"),)
