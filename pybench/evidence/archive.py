"""A bundle as a file: a zip archive that is the same for the same run, and the way back out of one of anybody's."""

from __future__ import annotations

import os
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from pybench.evidence.contents import (
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_TOTAL_BYTES,
    SUMS,
    digest_of,
    evidence_files,
    is_evidence_name,
    sums_text,
)
from pybench.model.errors import RunFolderError, UsageError

_EPOCH = (1980, 1, 1, 0, 0, 0)
_FILE_MODE = (stat.S_IFREG | 0o644) << 16
_UNIX = 3
_CHUNK_BYTES = 2**20
_MAX_BUNDLE_BYTES = 2**32 - 1
_MAX_DIRECTORY_BYTES = 2**24
_END = struct.Struct("<4s4H2LH")
_LOCATOR_BYTES, _MOST_COMMENT_BYTES = 20, 2**16
_ENCRYPTED = 0x1


class BundleError(RunFolderError):
    """A file that is no bundle, or one that nobody should unpack."""


def write_bundle(folder: Path, run_id: str, file: Path, reports: Iterable[str]) -> tuple[str, ...]:
    """Write the evidence in a run's folder, its ``reports`` among it, to ``file``; returns the names of its files.

    Equal for equal content: names are sorted, times and modes fixed. Raises ``RunFolderError`` for a folder with
    anything else in it than files, and ``UsageError`` where the file can't be written.
    """
    names = evidence_files(folder, reports)
    if not is_evidence_name(run_id) or "/" in run_id:
        raise RunFolderError(f"{folder}: its manifest names the run {run_id!r:.80}, which no run is named")
    sums = sums_text({name: digest_of(folder / name) for name in names})
    if file.exists() and not file.is_file():
        raise UsageError(f"{file}: cannot write the bundle: not a regular file; give the name of a new file")
    partial = file.with_name(f".{file.name}.{os.getpid()}.partial")
    try:
        with zipfile.ZipFile(partial, "x", strict_timestamps=True) as archive:
            for name in names:
                with (folder / name).open("rb") as source, archive.open(_member(run_id, name), "w") as target:
                    shutil.copyfileobj(source, target, _CHUNK_BYTES)
            archive.writestr(_member(run_id, SUMS), sums)
        partial.replace(file)
    except OSError as error:
        _remove(partial)
        remedy = "; make its folder first" if isinstance(error, FileNotFoundError) else ""
        raise UsageError(f"{file}: cannot write the bundle: {error.strerror}{remedy}") from error
    except BaseException:
        _remove(partial)
        raise
    return names


def _remove(partial: Path) -> None:
    """Remove what is there of it. A place where nothing can be written, as a read-only one, refuses this, too."""
    with suppress(OSError):
        partial.unlink()


def _member(run_id: str, name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(f"{run_id}/{name}", _EPOCH)
    member.create_system, member.external_attr = _UNIX, _FILE_MODE
    # Traces are compressed already.
    member.compress_type = zipfile.ZIP_STORED if name.endswith(".npz") else zipfile.ZIP_DEFLATED
    return member


def unpack_bundle(file: Path, into: Path) -> Path:
    """Unpack a bundle below ``into``, a folder of nobody else, and return the run's folder in it.

    Number, names and sizes of files are checked before anything is unpacked. Raises ``BundleError``.
    """
    try:
        with file.open("rb") as stream:
            _check_end(file, stream)
            with zipfile.ZipFile(stream) as archive:
                members = archive.infolist()
                run_id = _check_members(file, members, shutil.disk_usage(into).free)
                for member in members:
                    _unpack(archive, member, into)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise BundleError(f"{file}: cannot be unpacked: {error}; the bundle was edited or damaged") from error
    except OSError as error:
        raise BundleError(f"{file}: cannot be unpacked: {error.strerror}") from error
    return into / run_id


def _check_end(file: Path, stream: IO[bytes]) -> None:
    """The archive's last record, before anything trusts it: of how many files, in how large a directory."""
    size = stream.seek(0, os.SEEK_END)
    if size > _MAX_BUNDLE_BYTES:
        raise BundleError(f"{file}: larger than {_MAX_BUNDLE_BYTES} bytes, which no bundle is")
    start = max(0, size - _END.size - _MOST_COMMENT_BYTES - _LOCATOR_BYTES)
    stream.seek(start)
    tail = stream.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + _END.size > len(tail):
        raise BundleError(f"{file}: not a bundle (no zip archive), or cut short")
    _, _, _, _, count, directory_bytes, _, _ = _END.unpack_from(tail, at)
    if tail[max(0, at - _LOCATOR_BYTES) : at].startswith(b"PK\x06\x07"):
        raise BundleError(f"{file}: a zip archive of more or larger files than a bundle has")
    if count > MAX_FILES + 1 or directory_bytes > _MAX_DIRECTORY_BYTES:
        raise BundleError(f"{file}: lists {count} files, more than the {MAX_FILES} that a bundle may have")


def _check_members(file: Path, members: Sequence[zipfile.ZipInfo], free_bytes: int) -> str:
    """The run's id. Raises ``BundleError`` for anything that a bundle does not hold."""
    # The last record may count fewer than there are.
    if len(members) > MAX_FILES + 1:
        raise BundleError(f"{file}: holds {len(members)} files, more than the {MAX_FILES} that a bundle may have")
    total = sum(member.file_size for member in members)
    if total > min(MAX_TOTAL_BYTES, free_bytes):
        raise BundleError(f"{file}: {total} bytes when unpacked; a bundle has at most {MAX_TOTAL_BYTES}, and must fit")
    names = [member.filename for member in members]
    for member in members:
        if fault := _fault(member):
            raise BundleError(f"{file}: {member.filename!r:.200}: {fault}; a bundle is not unpacked with it")
    if len(set(names)) != len(names):
        raise BundleError(f"{file}: has two files of one name; a bundle is not unpacked with them")
    tops = {name.split("/")[0] for name in names}
    if len(tops) != 1:
        raise BundleError(f"{file}: not a bundle: its files are not in one folder")
    return tops.pop()


def _fault(member: zipfile.ZipInfo) -> str | None:
    """The first thing about a file that no bundle's has."""
    mode = member.external_attr >> 16
    kind = stat.S_IFMT(mode) if member.create_system == _UNIX else 0
    is_inside = "/" in member.filename and is_evidence_name(member.filename)
    faults = {
        "not a regular file": kind not in {0, stat.S_IFREG},
        "leaves its folder, or has a name that no file of a run has": not is_inside,
        "a name that reads differently elsewhere": member.orig_filename != member.filename,
        f"larger than {MAX_FILE_BYTES} bytes": member.file_size > MAX_FILE_BYTES,
        "encrypted": bool(member.flag_bits & _ENCRYPTED),
        "packed in a way that no bundle is": member.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED},
    }
    return next((fault for fault, found in faults.items() if found), None)


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo, into: Path) -> None:
    """Write one file that was checked; it has as many bytes as its entry has, or ``BadZipFile`` is raised."""
    path = into / member.filename
    path.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(member) as source, path.open("xb") as target:
        shutil.copyfileobj(source, target, _CHUNK_BYTES)
