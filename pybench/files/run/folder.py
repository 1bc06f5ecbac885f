"""A run's folder.

::

    runs/20261121T081500Z-tp_scaling/
        manifest.json      what is measured, where; written whole, with a checksum
        journal.jsonl      one Record a line with its place and checksum, fsync'd; survives SIGKILL
        worker/            the worker's source as it ran
        attempts/NAME.K/   trace.npz; of a process's first attempt also worker.log, and exchange/ with orders and events
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from pybench.core.assemble import assemble
from pybench.core.measurements import Measurements
from pybench.files.reader import DAMAGED, Reader, decode_json, decode_versioned, has_too_many
from pybench.files.run.journal import AbsentError, Journal, run_folder_errors
from pybench.files.run.manifest_rules import breaches
from pybench.files.safe_folder import opened_file, opened_folder, read_file, remove_file, write_file
from pybench.model.errors import RunFolderError, is_machine_fault
from pybench.model.manifest import MANIFEST_FILE, MANIFEST_VERSION, Manifest
from pybench.model.record import JOURNAL_FILE
from pybench.model.results import Results

MAX_MANIFEST_BYTES = 2**26
"""Manifests of pybench's suites have some 50 kB, one of 4096 points some 16 MB."""
_MANIFEST = Reader(Manifest)
_HEAD = b'{\n "checksum": "%s",'


def encode_manifest(manifest: Manifest, path: Path) -> bytes:
    """Content of the file at ``path``. Raises ``RunFolderError`` or ``ValueError`` if it can't be read back."""
    body = _MANIFEST.adapter().dump_json(manifest, indent=1)[1:] + b"\n"
    data = _HEAD % _digest(body) + body
    if len(data) > MAX_MANIFEST_BYTES or has_too_many(data):
        raise RunFolderError(f"{path.parent}: its plan is larger than a manifest may be; run parts of the suite (-k)")
    try:
        values = decode_json(data)
    except ValueError as error:
        raise RunFolderError(f"{path}: would not be read back: {error}; change it in the suite or its table") from error
    if _MANIFEST.read(values).plan.digests != manifest.plan.digests:
        raise ValueError(f"{path.parent}: a point of the manifest would not be read back as it is")
    return data


def decode_manifest(data: bytes, path: Path) -> Manifest:
    """The manifest in ``data``, read from ``path``. Raises ``RunFolderError`` when damaged or of another version."""
    values = decode_versioned(f"{path}", data, MANIFEST_VERSION)
    head = len(_HEAD % _digest(b""))
    if data[:head] != _HEAD % _digest(data[head:]):
        raise RunFolderError(f"{path}: its checksum does not fit; {DAMAGED}")
    manifest = _MANIFEST.read_of(f"{path}", values)
    for key, fault in breaches(manifest):
        raise RunFolderError(f"{path}: {key}: {fault}; {DAMAGED}")
    return manifest


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest()[:16].encode()


_LONGEST_NAME = 150


class RunFolder:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_id = path.name
        self.journal = Journal(path)

    @classmethod
    def create(cls, root: Path, suite_name: str, now: datetime | None = None) -> RunFolder:
        """Make ``root/<utc>-<suite>``, with a counter when that is taken. Raises ``RunFolderError``."""
        stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
        for suffix in ("", *(f"-{n}" for n in range(2, 100))):
            path = root / f"{stamp}-{suite_name}{suffix}"
            try:
                path.mkdir(parents=True)
                (path / JOURNAL_FILE).touch()
            except FileExistsError:
                continue
            except OSError as error:
                if is_machine_fault(error):
                    raise
                raise RunFolderError(
                    f"{path}: cannot create the run's folder: {error.strerror}; give another --runs"
                ) from error
            return cls(path.resolve())
        raise RunFolderError(f"{root}: a hundred runs of {suite_name} began in one second; wait, or use another --runs")

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open an existing run. Raises ``RunFolderError`` when ``path`` is none."""
        with run_folder_errors(path, "look for a run"):
            is_run, is_there = (path / MANIFEST_FILE).is_file(), path.exists()
        if not is_there:
            raise RunFolderError(f"{path}: there is no such folder; give a folder below runs/")
        if not is_run:
            raise RunFolderError(f"{path}: {_no_run(path)}")
        return cls(path.resolve())

    def require_owner(self) -> None:
        """Refuse to write into a folder that another user prepared. Raises ``RunFolderError``."""
        with run_folder_errors(self.path, "look for a run"):
            names = (MANIFEST_FILE, JOURNAL_FILE, "lock", "worker", "attempts", "reruns")
            for path in (self.path, *(self.path / name for name in names)):
                with suppress(FileNotFoundError):
                    if path.lstat().st_uid != os.geteuid():
                        raise RunFolderError(f"{path}: belongs to another user; start a new run instead")

    @property
    def mark(self) -> str:
        """Mark of this run's processes: id and place, as two runs may begin in one second in two folders."""
        return f"{self.run_id}-{hashlib.sha256(os.fsencode(self.path)).hexdigest()[:8]}"

    @property
    def worker(self) -> Path:
        """Where the worker's source is staged."""
        return self.path / "worker"

    def fresh_attempt(self, point_id: str, number: int) -> Path:
        """Make an empty folder for an attempt; what an interrupted one left is removed. Raises ``RunFolderError``."""
        name = attempt_name(point_id, number)
        path = self.path / "attempts" / name
        with run_folder_errors(path, "create the attempt's folder"), opened_folder(self.path) as folder:
            with suppress(FileExistsError):
                os.mkdir("attempts", 0o755, dir_fd=folder)
            with opened_folder("attempts", folder) as attempts:
                with suppress(FileNotFoundError):  # an error for a link in its place
                    shutil.rmtree(name, dir_fd=attempts)
                os.mkdir(name, 0o755, dir_fd=attempts)
                os.fsync(attempts)
        return path

    def subfolder(self, name: str) -> Path:
        """A folder inside, made where there is none. Raises ``RunFolderError``, also for a link of this name."""
        path = self.path / name
        with run_folder_errors(path, "make a folder in the run's"), opened_folder(self.path) as folder:
            with suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=folder)
            with opened_folder(name, folder):
                return path

    def lock(self) -> AbstractContextManager[None]:
        """Hold the run for one writer. Raises ``RunFolderError`` when another process has it, or nobody can."""
        return _held(self.path, os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX)

    def write_manifest(self, manifest: Manifest) -> None:
        """Write the manifest whole or not at all. Raises as :func:`encode_manifest`, and ``RunFolderError``."""
        data = encode_manifest(manifest, self.path / MANIFEST_FILE)
        with run_folder_errors(self.path, "write the manifest"), opened_folder(self.path) as folder:
            write_file(folder, MANIFEST_FILE, data)

    def read_manifest(self) -> Manifest:
        """Read the manifest. Raises ``RunFolderError`` when it is damaged or of another version."""
        path = self.path / MANIFEST_FILE
        with run_folder_errors(path, "read the manifest"), opened_folder(self.path) as folder:
            data = read_file(folder, MANIFEST_FILE, MAX_MANIFEST_BYTES)
        return decode_manifest(data, path)

    def read(self) -> tuple[Manifest, Measurements]:
        """The manifest, and what was measured by its plan. Raises ``RunFolderError``."""
        manifest = self.read_manifest()
        return manifest, Measurements.of(manifest.plan, self.journal.records())

    def results(self) -> Results:
        """The results, judged anew from the journal. Raises ``RunFolderError``."""
        return assemble(*self.read())

    def write_report(self, file: str, text: str) -> None:
        """Write a report into the run's folder. Raises ``RunFolderError``; nothing measured is lost by that."""
        remedy = "; `pybench report` prints it again"
        with run_folder_errors(self.path / file, "write the report", remedy), opened_folder(self.path) as folder:
            write_file(folder, file, text.encode())

    def remove_reports(self, files: Iterable[str]) -> None:
        """Remove reports that no longer follow from the journal. Raises ``RunFolderError``."""
        with run_folder_errors(self.path, "remove reports of before"), opened_folder(self.path) as folder:
            for file in files:
                remove_file(folder, file)


def attempt_name(point_id: str, number: int) -> str:
    """Name of the folder of one attempt, e.g. ``decode_tensor_parallel=2.1``."""
    # Brackets are awkward in a shell; other characters come from the values of variables, as do long names.
    name = re.sub(r"[^A-Za-z0-9=,._-]+", "_", point_id).strip("_")
    if len(name) > _LONGEST_NAME or re.search(r"[^A-Za-z0-9=,._\-\[\]]", point_id):
        name = f"{name[:_LONGEST_NAME]}_{hashlib.sha256(point_id.encode()).hexdigest()[:8]}"
    return f"{name}.{number}"


def _no_run(path: Path) -> str:
    """Why a path is no run, and what to give."""
    if not path.is_dir():
        return "neither a run's folder nor a results.json; give one of them"
    runs = [file.parent.name for file in path.glob(f"*/{MANIFEST_FILE}")]
    if runs:
        return f"a folder of runs; give one of them, such as the newest, {max(runs)}"
    if next(path.glob("*.json"), None) is not None:
        return f"no run here (no {MANIFEST_FILE}); give one of its .json files, or a run's folder"
    return f"no run here (no {MANIFEST_FILE}); give a folder below runs/"


_FILE = "lock"


@contextmanager
def copying(path: Path) -> Iterator[None]:
    """Keep writers of the run at ``path`` out; a folder without the file has none. Raises ``RunFolderError``."""
    with ExitStack() as held:
        with suppress(AbsentError):
            held.enter_context(_held(path, os.O_RDONLY, fcntl.LOCK_SH))
        yield


def is_written(path: Path) -> bool:
    """Whether another process writes the run at ``path``."""
    try:
        with copying(path):
            return False
    except RunFolderError:
        return True


@contextmanager
def _held(path: Path, flags: int, kind: int) -> Iterator[None]:
    with ExitStack() as opened:
        with run_folder_errors(path, "lock the run"):
            folder = opened.enter_context(opened_folder(path))
            file = opened.enter_context(opened_file(folder, _FILE, flags))
        with run_folder_errors(path, "lock the run", "; keep runs on a file system that has flock, by --runs"):
            try:
                fcntl.flock(file, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunFolderError(f"{path}: another pybench is writing this run; wait for it to end") from None
        yield


def earlier_runs(
    root: Path, fingerprint: str, *, most: int, suite: str = "", current: Path | None = None
) -> Iterator[tuple[RunFolder, Manifest]]:
    """The latest ``most`` readable runs but ``current``, of any suite or of one, the newest first."""
    others = sorted(root.glob(f"*-{suite}*"), reverse=True)
    for path in [path for path in others if path != current][:most]:
        try:
            run = RunFolder.open(path)
            manifest = run.read_manifest()
        except (RunFolderError, OSError):
            continue
        if manifest.fingerprint == fingerprint:
            yield run, manifest
