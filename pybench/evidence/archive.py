"""A run's evidence: its files, their digests, and the zip archive that holds both.

``sha256sum -c SHA256SUMS`` checks an unpacked bundle, too; two files describe it to tools of in-toto and RO-Crate.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from pybench.files.run.journal import run_folder_errors
from pybench.model.errors import RunFolderError, UsageError, fault_text
from pybench.model.manifest import MANIFEST_FILE
from pybench.model.record import JOURNAL_FILE
from pybench.model.results import RESULTS_FILE
from pybench.report.formats import REPORT_FILES

SUMS, STATEMENT, CRATE = "SHA256SUMS", "in-toto-statement.json", "ro-crate-metadata.json"
MAX_FILES = 20_000
MAX_TOTAL_BYTES = 2**33
_MAX_BYTES = {
    ".npz": 2**30,
    ".jsonl": 2**28,
    ".log": 2**28,
    ".html": 2**28,
    ".json": 2**26,
    ".xml": 2**26,
    ".md": 2**26,
    SUMS: 2**23,
}
"""Most bytes of a file, by the end of its name: what the readers of these files accept."""
_MAX_SOURCE_BYTES = 2**24
"""Most bytes of a file of the worker's source."""
_MOST_RATIO, _FREE_BYTES = 100, 2**28
"""Most unpacked bytes for each byte of the bundle, and an allowance for one long log of equal lines."""
_MAX_DEPTH = 12
# Other files of workers in an attempt's folder, such as caches of engines, are no evidence.
_OF_ATTEMPT = re.compile(
    r"attempts/[^/]+/(?:trace(?:\.[^/]+)?\.npz|worker\.log|exchange/(?:orders|events\.\d{1,4})\.jsonl)"
)
# Characters of points' ids and of modules; nothing hidden.
_PART = re.compile(r"[A-Za-z0-9_=,+@-][A-Za-z0-9_=,.+@-]{0,250}")
_LINE = re.compile(r"([0-9a-f]{64})  (\S+)")
_FILE_MODE = (stat.S_IFREG | 0o644) << 16
_UNIX = 3
_MAX_BUNDLE_BYTES = 2**32 - 1
_MAX_DIRECTORY_BYTES = 2**24
_END = struct.Struct("<4s4H2LH")
_LOCATOR_BYTES, _MOST_COMMENT_BYTES = 20, 2**16
_ENCRYPTED = 0x1
_MAGIC = b"PK"
_TEST_RESULTS = {"pass": "PASSED", "fail": "FAILED"}
"""in-toto's word for a verdict; ``WARNED`` for any other."""


class BundleError(RunFolderError):
    """A file that is no bundle, or is unsafe to unpack."""


def is_evidence_name(name: str) -> bool:
    """Whether a bundle may hold a file of this name: below its folder, valid on every system."""
    parts = name.split("/")
    return len(parts) <= _MAX_DEPTH and all(_PART.fullmatch(part) and part.isascii() for part in parts)


def max_bytes_of(name: str) -> int:
    """Most bytes of a file of a run by its name, below the run's folder or the archive's."""
    limits = {} if "worker" in name.split("/")[:2] else _MAX_BYTES
    return next((limit for end, limit in limits.items() if name.endswith(end)), _MAX_SOURCE_BYTES)


def evidence_files(folder: Path) -> tuple[str, ...]:
    """Names of all files of a run's folder that a bundle holds, its reports among them, sorted.

    Raises ``RunFolderError`` for a link, pipe or device among them, or for more than a run has.
    """
    with run_folder_errors(folder, "read the run's files"):
        names = sorted(_names(folder))
    if len(names) > MAX_FILES:
        raise RunFolderError(f"{folder}: more than {MAX_FILES} files, which no run has")
    return tuple(names)


def _names(folder: Path) -> Iterator[str]:
    """Raises ``RunFolderError`` also where a folder of a run is a link."""

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    for name in (MANIFEST_FILE, JOURNAL_FILE, *REPORT_FILES.values()):
        if (folder / name).is_symlink() or (folder / name).exists():
            yield _regular(folder, folder / name)
    for top in (folder / "worker", folder / "attempts"):
        if top.is_symlink():
            yield _regular(folder, top)
        for parent, inside, files in os.walk(top, onerror=refuse):
            links = [name for name in inside if (Path(parent) / name).is_symlink()]
            for path in (Path(parent) / name for name in (*files, *links)):
                is_linked = path.name in links and (path.name == "exchange" or path.parent == top)
                if top.name == "worker" or is_linked or _OF_ATTEMPT.fullmatch(path.relative_to(folder).as_posix()):
                    yield _regular(folder, path)


def _regular(folder: Path, path: Path) -> str:
    name = path.relative_to(folder).as_posix()
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise RunFolderError(f"{path}: not a regular file; a run's folder has no links, pipes or devices")
    if status.st_size > max_bytes_of(name) or not is_evidence_name(name):
        raise RunFolderError(f"{path}: a name or size that no file of a run has; remove it if you put it there")
    return name


def digest_of(path: Path) -> str:
    """SHA-256 of a file, as hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def parse_sums(text: str) -> dict[str, str]:
    """Digests by name. Raises ``ValueError``, which names the line."""
    digests: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        matched = _LINE.fullmatch(line)
        if matched is None or matched[2] in digests or not is_evidence_name(matched[2]):
            raise ValueError(f"{SUMS}:{number}: not a digest and the name of a file that comes once")
        digests[matched[2]] = matched[1]
    return digests


def descriptions(folder: Path, digests: Mapping[str, str]) -> dict[str, str]:
    """A run's files for tools that do not know pybench: in-toto Statement v1 (test result v0.1), RO-Crate 1.1.

    Raises ``RunFolderError`` where results.json is none.
    """
    try:
        results = json.loads((folder / RESULTS_FILE).read_bytes())
        about = {
            "name": f"pybench run {results['run_id']}",
            "description": f"{results['suite']}: {results['verdict']}. {results['description']}",
            "datePublished": results["provenance"]["created_utc"],
        }
        result = _TEST_RESULTS.get(results["verdict"], "WARNED")
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise RunFolderError(f"{folder / RESULTS_FILE}: no results of a run: {error}") from error
    subjects = {name: {"name": name, "digest": {"sha256": digest}} for name, digest in digests.items()}
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [*subjects.values()],
        "predicateType": "https://in-toto.io/attestation/test-result/v0.1",
        "predicate": {"result": result, "configuration": [subjects[MANIFEST_FILE]]},
    }
    crate = "https://w3id.org/ro/crate/1.1"
    graph = [
        {"@id": CRATE, "@type": "CreativeWork", "about": {"@id": "./"}, "conformsTo": {"@id": crate}},
        {"@id": "./", "@type": "Dataset", **about, "hasPart": [{"@id": name} for name in digests]},
        *({"@id": name, "@type": "File"} for name in digests),
    ]
    values = {STATEMENT: statement, CRATE: {"@context": f"{crate}/context", "@graph": graph}}
    return {name: f"{json.dumps(value, indent=1)}\n" for name, value in values.items()}


def write_bundle(folder: Path, run_id: str, file: Path) -> tuple[str, ...]:
    """Write the evidence in a run's folder to ``file``; returns the names of its files.

    Equal for equal content: names are sorted, times and modes fixed. Raises ``RunFolderError`` for a folder with
    anything but files in it, and ``UsageError`` where the file can't be written.
    """
    names = evidence_files(folder)
    if not is_evidence_name(run_id) or "/" in run_id:
        raise RunFolderError(f"{folder}: its manifest names the run {run_id!r:.80}, which no run is named")
    with run_folder_errors(folder, "read the run's files"):
        digests = {name: digest_of(folder / name) for name in names}
    texts = descriptions(folder, digests)
    digests |= {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    texts[SUMS] = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
    if file.exists() and not file.is_file():
        raise UsageError(f"{file}: cannot write the bundle: not a regular file; give the name of a new file")
    partial = file.with_name(f".{file.name}.{os.getpid()}.partial")
    try:
        with zipfile.ZipFile(partial, "x") as archive:
            for name in names:
                with (folder / name).open("rb") as source, archive.open(_member(run_id, name), "w") as target:
                    shutil.copyfileobj(source, target)
            for name, text in texts.items():
                archive.writestr(_member(run_id, name), text)
        partial.replace(file)
    except OSError as error:
        raise UsageError(f"{file}: cannot write the bundle: {fault_text(error, 'make its folder first')}") from error
    finally:
        with suppress(OSError):  # a place that refuses the bundle refuses this, too
            partial.unlink()
    return names


def _member(run_id: str, name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(f"{run_id}/{name}")  # of 1980-01-01
    member.create_system, member.external_attr = _UNIX, _FILE_MODE
    # Traces are compressed already.
    member.compress_type = zipfile.ZIP_STORED if name.endswith(".npz") else zipfile.ZIP_DEFLATED
    return member


def require_archive(file: Path) -> None:
    """Raise ``UsageError`` for a file that is absent or no zip archive: it accuses no run."""
    if not file.is_file():
        raise UsageError(f"{file}: no such file; verify takes a bundle or a run's folder")
    try:
        with file.open("rb") as stream:
            begins = stream.read(len(_MAGIC))
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {fault_text(error)}") from error
    if begins != _MAGIC:
        evidence = "; a results.json has no evidence to check" if file.suffix == ".json" else ""
        raise UsageError(f"{file}: not a bundle; verify takes a bundle (.zip) or a run's folder{evidence}")


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
                    path = into / member.filename
                    path.parent.mkdir(parents=True, exist_ok=True)
                    # A file of another size than its entry has raises BadZipFile.
                    with archive.open(member) as source, path.open("xb") as target:
                        shutil.copyfileobj(source, target)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise BundleError(f"{file}: cannot be unpacked: {error}; the bundle was edited or damaged") from error
    except OSError as error:
        raise BundleError(f"{file}: cannot be unpacked: {fault_text(error)}") from error
    return into / run_id


def _check_end(file: Path, stream: IO[bytes]) -> None:
    """Check counts and sizes in the archive's last record before zipfile reads its directory."""
    size = stream.seek(0, os.SEEK_END)
    if size > _MAX_BUNDLE_BYTES:
        raise BundleError(f"{file}: larger than {_MAX_BUNDLE_BYTES} bytes, the most of a bundle")
    start = max(0, size - _END.size - _MOST_COMMENT_BYTES - _LOCATOR_BYTES)
    stream.seek(start)
    tail = stream.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + _END.size > len(tail):
        raise BundleError(f"{file}: not a bundle (no zip archive), or cut short")
    _, _, _, _, count, directory_bytes, _, _ = _END.unpack_from(tail, at)
    if tail[max(0, at - _LOCATOR_BYTES) : at].startswith(b"PK\x06\x07"):
        raise BundleError(f"{file}: too many or too large files for a bundle")
    if count > MAX_FILES + 3 or directory_bytes > _MAX_DIRECTORY_BYTES:
        raise BundleError(f"{file}: lists {count} files, more than the {MAX_FILES} that a bundle may have")


def _check_members(file: Path, members: Sequence[zipfile.ZipInfo], free_bytes: int) -> str:
    """Check names and sizes, and return the run's id. Raises ``BundleError``."""
    # The last record may count fewer than there are.
    if len(members) > MAX_FILES + 3:
        raise BundleError(f"{file}: holds {len(members)} files, more than the {MAX_FILES} that a bundle may have")
    total = sum(member.file_size for member in members)
    most = min(MAX_TOTAL_BYTES, free_bytes, _FREE_BYTES + _MOST_RATIO * file.stat().st_size)
    if total > most:
        raise BundleError(f"{file}: {total} bytes when unpacked; a bundle of its size has at most {most}, and must fit")
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
    """The first reason not to unpack a file; ``None`` where there is none."""
    mode = member.external_attr >> 16
    kind = stat.S_IFMT(mode) if member.create_system == _UNIX else 0
    is_inside = "/" in member.filename and is_evidence_name(member.filename)
    faults = {
        "not a regular file": kind not in {0, stat.S_IFREG},
        "leaves its folder, or has a name that no file of a run has": not is_inside,
        "a name that reads differently elsewhere": member.orig_filename != member.filename,
        f"larger than the {max_bytes_of(member.filename)} bytes of such a file": member.file_size
        > max_bytes_of(member.filename),
        "encrypted": bool(member.flag_bits & _ENCRYPTED),
        "a compression that bundles do not use": member.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED},
    }
    return next((fault for fault, holds in faults.items() if holds), None)
