"""A run's folder survives what can happen to it."""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import re
import stat
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click import UsageError

from pybench.cli.params import Duration
from pybench.files.run import folder, journal
from pybench.files.run.folder import RunFolder, attempt_name, copying
from pybench.model.errors import RunFolderError
from pybench.model.manifest import MANIFEST_VERSION, Manifest, PlanOptions
from pybench.model.record import Energy, GpuEnergy, RankReport, Record
from pybench.model.suite import Benchmark, Comparison, Effort, ExpectedTable, FigureRow, Limits, Plan, Point
from pybench.model.wire import Failure, Metric, Step, Work
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.node import Matmul
from tests.builders import HEADER, MACHINE, MANIFEST, RECORD

NOW = datetime(2026, 11, 21, 8, 15, tzinfo=UTC)


def record(attempt: int = 1) -> Record:
    header = replace(HEADER, packages={"torch": "2.13.0"})
    step = Step(index=0, phase="measure", start_ns=2**62, end_ns=2**62 + 1, work=Work(output_tokens=3), loss=0.1)
    gpu = GpuEnergy(
        uuid="GPU-a",
        index=0,
        energy_j=1.5,
        energy_low_j=1.0,
        energy_high_j=2.0,
        mean_power_w=None,
        max_power_w=None,
        method="counter",
        flags=("gap",),
    )
    return replace(
        RECORD,
        point_id="decode[tensor_parallel=1]",
        point_digest="d",
        attempt=attempt,
        ranks=(RankReport(header=header, steps=(step,), metrics=(Metric(name="m", value=1.0, unit="B"),)),),
        failure=Failure(cause="signal", message="ended by signal 9", detail="tail\nümlaut"),
        energy=Energy(start_ns=1, end_ns=2, gpus=(gpu,)),
        log="attempts/x/worker.log",
        argv=("python3", "-I"),
    )


@pytest.fixture
def manifest() -> Manifest:
    """Of one point that multiplies on a CPU."""
    point = Point(
        id="matmul", benchmark="matmul", axes={}, settings=Matmul(backend="torch"), effort=Effort(), architecture=None
    )
    return replace(
        MANIFEST,
        plan=Plan(points=(point,), skips=()),
        device="cpu",
        machine=replace(MACHINE, kind="cpu", fabric="none", gpus=(), gpu_reason="no driver", driver=None),
        worker_sha256="0" * 64,
    )


def run_folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "runs", "tp_scaling", NOW)


def test_runs_of_one_second_differ_in_their_mark(tmp_path: Path) -> None:
    """Else resuming one would end the other's workers."""
    now = datetime(2026, 11, 21, tzinfo=UTC)
    one, other = (RunFolder.create(tmp_path / name, "suite", now) for name in ("a", "b"))
    assert one.run_id == other.run_id
    assert one.mark != other.mark
    assert RunFolder(one.path).mark == one.mark


def test_attempts_of_two_points_have_two_folders() -> None:
    """Also where the values of their variables differ in characters that no folder should have, and at any length."""
    plain = "train[data_parallel=2]"
    assert attempt_name(plain, 1) == "train_data_parallel=2.1"
    ids = [plain, *(f"train[environment={value}]" for value in ("A=x:y", "A=x y", "A=x_y", f"A={'x' * 200}"))]
    names = [attempt_name(one, 1) for one in ids]
    assert len(set(names)) == len(ids)
    assert all(re.fullmatch(r"[A-Za-z0-9=,._-]{1,200}", name) for name in names)


def test_folder_is_named_for_time_and_suite_and_never_shared(tmp_path: Path) -> None:
    """Two runs in one second get two folders."""
    assert run_folder(tmp_path).run_id == "20261121T081500Z-tp_scaling"
    assert run_folder(tmp_path).run_id == "20261121T081500Z-tp_scaling-2"


def test_records_come_back_as_they_went(tmp_path: Path) -> None:
    """Nanoseconds stay exact integers, tuples stay tuples, None stays None."""
    folder = run_folder(tmp_path)
    assert folder.journal.records() == ()
    folder.journal.append(record(1))
    folder.journal.append(record(2))
    assert folder.journal.records() == (record(1), record(2))


def test_a_torn_last_line_is_left_out_and_overwritten(tmp_path: Path) -> None:
    """The rest after a SIGKILL or a power cut in mid-write."""
    folder = run_folder(tmp_path)
    folder.journal.append(record(1))
    with (folder.path / "journal.jsonl").open("ab") as stream:
        stream.write(b'{"point_id": "decode')
    assert folder.journal.records() == (record(1),)
    folder.journal.append(record(2))
    assert folder.journal.records() == (record(1), record(2))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("garbage", "journal.jsonl:1: not JSON"),
        ("[]", "journal.jsonl:1: no version; not written by pybench"),
        ('{"version": 99}', r"journal.jsonl:1: from a newer pybench \(version 99, this one reads 2\); update"),
        (
            '{"version": 0}',
            r"journal.jsonl:1: version 0 is too old for this pybench \(reads 2\); read it with the pybench that wrote",
        ),
        (
            '{"version": 1}',
            r"journal.jsonl:1: version 1 is too old for this pybench \(reads 2\); read it with the pybench that wrote",
        ),
        (
            '{"version": 2}',
            "journal.jsonl:1: no checksum; the journal was edited or damaged; get the run's folder again",
        ),
    ],
)
def test_damage_before_the_last_line_is_an_error(tmp_path: Path, line: str, message: str) -> None:
    """A whole line without a record does not come from a crash."""
    folder = run_folder(tmp_path)
    (folder.path / "journal.jsonl").write_text(line + "\n")
    with pytest.raises(RunFolderError, match=message):
        folder.journal.records()


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    """The message names the file that makes a run."""
    with pytest.raises(RunFolderError, match=r"no run here \(no manifest.json\); give a folder below runs/"):
        RunFolder.open(tmp_path)


def test_a_manifest_of_another_kind_is_refused(tmp_path: Path) -> None:
    """JSON is not enough."""
    folder = run_folder(tmp_path)
    manifest = folder.path / "manifest.json"
    manifest.write_text("{")
    with pytest.raises(RunFolderError, match="not JSON"):
        folder.read_manifest()
    manifest.write_text(json.dumps({"version": 1}))
    with pytest.raises(
        RunFolderError, match=rf"manifest.json: version 1 is too old for this pybench \(reads {MANIFEST_VERSION}\)"
    ):
        folder.read_manifest()
    manifest.write_text(json.dumps({"version": MANIFEST_VERSION}))
    with pytest.raises(RunFolderError, match=r"manifest.json: its checksum does not fit"):
        folder.read_manifest()


def test_a_manifest_with_an_earlier_builds_memory_of_gpus_is_too_old(tmp_path: Path, manifest: Manifest) -> None:
    """It was called vram_gb until 27 November 2026, in version 4: nobody edited or damaged the file."""
    folder = run_folder(tmp_path)
    folder.write_manifest(replace(manifest, version=4))
    path = folder.path / "manifest.json"
    path.write_text(path.read_text().replace("vram_gib", "vram_gb"))
    with pytest.raises(RunFolderError, match=r"version 4 is too old for this pybench"):
        folder.read_manifest()


def test_two_writers_exclude_each_other(tmp_path: Path) -> None:
    """The second one is told so at once."""
    folder = run_folder(tmp_path)
    with (
        folder.lock(),
        pytest.raises(RunFolderError, match="another pybench is writing this run"),
        RunFolder(folder.path).lock(),
    ):
        pytest.fail("entered twice")


def test_a_run_that_is_written_is_not_copied(tmp_path: Path) -> None:
    """Two may copy it at once; a writer and a copy exclude each other; a folder without a lock has no writer."""
    folder = run_folder(tmp_path)
    with copying(folder.path):
        pass
    refused = "another pybench is writing this run; wait for it to end"
    with folder.lock(), pytest.raises(RunFolderError, match=refused), copying(folder.path):
        pytest.fail("copied a run that is being written")
    with (
        copying(folder.path),
        copying(folder.path),
        pytest.raises(RunFolderError, match=refused),
        RunFolder(folder.path).lock(),
    ):
        pytest.fail("wrote a run that is being copied")


def test_a_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """The place, and the system's error."""
    (tmp_path / "runs").write_text("")
    with pytest.raises(RunFolderError, match="cannot create the run's folder"):
        run_folder(tmp_path)


def test_attempt_folders_are_safe_names(tmp_path: Path) -> None:
    """No bracket reaches the shell."""
    folder = run_folder(tmp_path)
    path = folder.fresh_attempt("decode[backend=torch,tensor_parallel=2]", 3)
    assert path.name == "decode_backend=torch,tensor_parallel=2.3"


def test_no_bit_flip_passes(tmp_path: Path) -> None:
    """Each of 1,000 flipped bits, at places drawn from a fixed seed, is found and named by its line."""
    folder = run_folder(tmp_path)
    for number in range(1, 5):
        folder.journal.append(record(number))
    path = folder.path / "journal.jsonl"
    whole = path.read_bytes()
    places = random.Random(1).sample(range(8 * len(whole)), 1_000)
    for place in places:
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        line = whole[: place // 8].count(b"\n") + 1
        with pytest.raises(RunFolderError, match=rf"journal\.jsonl:{line}: "):
            folder.journal.records()


def test_no_bit_flip_of_the_manifest_passes(tmp_path: Path, manifest: Manifest) -> None:
    """1,000 of 1,000 again."""
    folder = run_folder(tmp_path)
    folder.write_manifest(manifest)
    assert folder.read_manifest() == manifest
    path = folder.path / "manifest.json"
    whole = path.read_bytes()
    for place in random.Random(2).sample(range(8 * len(whole)), 1_000):
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(RunFolderError, match=r"manifest\.json: "):
            folder.read_manifest()


def _lines(folder: RunFolder) -> list[bytes]:
    return (folder.path / "journal.jsonl").read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a, b, c: [a, a, b, c], r"journal\.jsonl:2: holds record 1; lines were added, removed or exchanged"),
        (lambda a, _b, c: [a, c], r"journal\.jsonl:2: holds record 3; lines were added, removed or exchanged"),
        (lambda a, b, c: [b, a, c], r"journal\.jsonl:1: holds record 2; lines were added, removed or exchanged"),
        (lambda a, b, c: [a, b"\n", b, c], r"journal\.jsonl:2: not JSON"),
        (lambda a, b, c: [a[:-1], b, c], r"journal\.jsonl:1: its checksum does not fit"),
        (lambda a, b, c: [a, b, c[:-1], b"x"], r"journal\.jsonl:3: does not end its line"),
    ],
)
def test_lines_that_moved_are_named(tmp_path: Path, change: Callable[..., list[bytes]], message: str) -> None:
    """A line has its place: ten copies of a good attempt are no ten attempts."""
    folder = run_folder(tmp_path)
    for number in range(1, 4):
        folder.journal.append(record(number))
    (folder.path / "journal.jsonl").write_bytes(b"".join(change(*_lines(folder))))
    with pytest.raises(RunFolderError, match=message):
        folder.journal.records()


def test_an_attempt_is_recorded_once(tmp_path: Path) -> None:
    """Also under two places that are right."""
    folder = run_folder(tmp_path)
    folder.journal.append(record(1))
    folder.journal.append(record(1))
    with pytest.raises(RunFolderError, match=r"journal\.jsonl:2: attempt 1 at .* is on line 1 too"):
        folder.journal.records()


def test_no_record_is_written_that_is_not_read_back(tmp_path: Path) -> None:
    """NaN, or a value of another type: the journal stays as it was."""
    folder = run_folder(tmp_path)
    folder.journal.append(record(1))
    wrong: Any = "a second"
    for bad in (replace(record(2), duration_s=math.nan), replace(record(2), duration_s=wrong)):
        with pytest.raises(ValueError, match=r"not JSON compliant|valid number"):
            folder.journal.append(bad)
    assert folder.journal.records() == (record(1),)


@pytest.mark.parametrize("number", [1e61, 2**64, [2**64]])
def test_no_manifest_is_written_that_is_not_read_back(tmp_path: Path, manifest: Manifest, number: Any) -> None:
    """A number beyond all bounds is refused before anything is measured."""
    given: dict[str, Any] = {"backend": "vllm", "model": "llama-tiny", "engine_args": {"a": number}}
    settings = Generate(**given, batch_size=1, prompt_tokens=1, output_tokens=1)
    folder, point = run_folder(tmp_path), replace(manifest.plan.points[0], settings=settings)
    with pytest.raises(RunFolderError, match=r"plan\.points\.0\.settings\.engine_args\.a[.0]*: .* is larger than any"):
        folder.write_manifest(replace(manifest, plan=Plan(points=(point,), skips=())))
    assert not (folder.path / "manifest.json").exists()


@pytest.mark.parametrize("name", ["", "..", "../other", "/tmp", "a\0"])
def test_rates_are_read_from_a_run_of_the_same_folder_alone(tmp_path: Path, manifest: Manifest, name: str) -> None:
    """The name of a run is no path."""
    folder = run_folder(tmp_path)
    folder.write_manifest(replace(manifest, plan=replace(manifest.plan, rates_run=name)))
    with pytest.raises(RunFolderError, match=r"plan\.rates_run: .* is no name of a run"):
        folder.read_manifest()


def test_no_manifest_is_written_whose_points_are_read_back_as_others(tmp_path: Path, manifest: Manifest) -> None:
    """Its own records would be refused; here a number without its fraction."""
    point = replace(manifest.plan.points[0], effort=Effort(dither_ms=20))
    with pytest.raises(ValueError, match="would not be read back as it is"):
        run_folder(tmp_path).write_manifest(replace(manifest, plan=Plan(points=(point,), skips=())))


def test_a_record_that_no_journal_keeps_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written files are readable: lines and files keep the reader's limits."""
    folder = run_folder(tmp_path)
    folder.journal.append(record(1))
    whole = (folder.path / "journal.jsonl").read_bytes()
    monkeypatch.setattr(journal, "_MAX_BYTES", 2 * len(whole) - 1)
    with pytest.raises(RunFolderError, match=r"journal\.jsonl: would be larger than \d+ bytes; .* in a new run"):
        folder.journal.append(record(2))
    monkeypatch.setattr(journal, "MAX_LINE_BYTES", len(whole) - 2)
    with pytest.raises(RunFolderError, match=r"more than a journal keeps of an attempt; give it fewer steps"):
        folder.journal.append(record(2))
    assert (folder.path / "journal.jsonl").read_bytes() == whole
    with pytest.raises(RunFolderError, match=r"journal\.jsonl:1: longer than \d+ bytes"):
        folder.journal.records()


def test_a_line_without_end_is_not_copied_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a record would be appended, the file's end is read up to two lines."""
    folder = run_folder(tmp_path)
    (folder.path / "journal.jsonl").write_bytes(b"x" * 2**20)
    monkeypatch.setattr(journal, "MAX_LINE_BYTES", 2**17)
    with pytest.raises(RunFolderError, match=r"cannot write the journal: A line of more than 131072 bytes"):
        folder.journal.append(record(1))


def test_a_plan_that_no_manifest_keeps_is_not_written(
    tmp_path: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is measured that could not be reported."""
    monkeypatch.setattr(folder, "MAX_MANIFEST_BYTES", 1000)
    with pytest.raises(RunFolderError, match=r"its plan is larger than a manifest may be; run parts of the suite"):
        run_folder(tmp_path).write_manifest(manifest)


def test_text_that_cannot_be_utf_8_is_not_written(tmp_path: Path) -> None:
    """Nor read: an error, and no crash of what prints or hashes it."""
    folder = run_folder(tmp_path)
    with pytest.raises(ValueError, match=r"argv\.0: holds half a character"):
        folder.journal.append(replace(record(1), argv=("\ud800",)))


def forged(folder: RunFolder, manifest: Manifest, *path: str | int, value: object) -> None:
    """The manifest with another value, and a checksum that fits."""
    folder.write_manifest(manifest)
    file = folder.path / "manifest.json"
    values = json.loads(file.read_text())
    del values["checksum"]
    inner = values
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    body = json.dumps(values, indent=1).encode()[1:] + b"\n"
    file.write_bytes(b'{\n "checksum": "%s",' % hashlib.sha256(body).hexdigest()[:16].encode() + body)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("plan", "points", 0, "effort", "attempts"), 101, r"effort\.attempts: 101 is above 100, the most that"),
        (("plan", "points", 0, "effort", "attempts"), 0, r"effort\.attempts: 0 is below 1, the least that"),
        (("plan", "points", 0, "effort", "max_attempts"), 2**31, r"effort\.max_attempts: 2147483648 is above 1000"),
        (("plan", "points", 0, "effort", "steps"), 10_001, r"effort\.steps: 10001 is above 10000"),
        (("plan", "points", 0, "settings", "m"), 2**17 + 1, r"settings\.m: 131073 is above 131072"),
        (("plan", "points", 0, "job"), {"samples": 1, "epochs": 10**9}, r"job\.epochs: 1000000000 is above 10000"),
        (("options", "time_limit_s"), "inf", r"options\.time_limit_s: Input should be a finite number"),
        (("options", "time_limit_s"), 604_801, r"options\.time_limit_s: 604801 is no time limit"),
        (("options", "time_limit_s"), 0, r"options\.time_limit_s: 0 is no time limit"),
        (("options", "max_gpus"), "9" * 25, r"options\.max_gpus: Input should be less than or equal to 92233720"),
        (("options", "time_limit_s"), "1e300", r"options\.time_limit_s: Input should be less than or equal to 10{60};"),
        (("created_utc",), "", r"created_utc: '' is no ISO 8601 time"),
        (("created_utc",), "0001-01-01T00:00:00+23:59", r"created_utc: '0001-.* is no ISO 8601 time"),
        (("created_utc",), "1969-12-31T00:00:00+00:00", r"created_utc: '1969-.* is a time that no run was at"),
        (("fingerprint",), "\ud800", r"fingerprint: holds half a character \(a lone surrogate\), which no text has"),
        (("environment",), {"A\udfff": ""}, r"'environment\.A\\udfff': holds half a character"),
    ],
)
def test_a_manifest_with_a_checksum_made_again(
    tmp_path: Path, manifest: Manifest, path: tuple[str | int, ...], value: object, message: str
) -> None:
    """A manifest keeps the bounds of suites and options: computing beyond them might never end."""
    folder = run_folder(tmp_path)
    forged(folder, manifest, *path, value=value)
    with pytest.raises(RunFolderError, match=message):
        folder.read_manifest()


@pytest.mark.parametrize(
    ("place", "values", "message"),
    [
        ("row", {"value": None}, r"tables\.t\.rows\.0: has no value, minimum or maximum; the file was"),
        ("row", {"value": -1.0}, r"tables\.t\.rows\.0\.value: -1\.0 is below 0, the least"),
        ("row", {"tolerance": 2.0}, r"tables\.t\.rows\.0\.tolerance: 2\.0 is above 1, the most"),
        ("row", {"count": 0}, r"tables\.t\.rows\.0\.count: 0 is below 1"),
        ("limits", {"minimum": None}, r"expectations\.0: has no minimum and no maximum"),
        ("comparison", {"factor": 0.0}, r"expectations\.1\.factor: 0\.0 is below 0\.001"),
    ],
)
def test_what_figures_are_judged_by_is_as_a_file_may_have_it(
    tmp_path: Path, manifest: Manifest, place: str, values: dict[str, Any], message: str
) -> None:
    """Rows of tables and expectations: judging by others would break off."""
    row = FigureRow(
        machine="any",
        workload="matmul",
        metric="matmul_flops_per_s",
        count=1,
        source="a test",
        kind="measured",
        value=1.0,
        unit="FLOP/s",
    )
    limits = Limits(metric="matmul_flops_per_s", minimum=1.0)
    comparison = Comparison(metric="matmul_flops_per_s", order="below", other="matmul")
    changed = {
        name: replace(old, **(values if name == place else {}))
        for name, old in (("row", row), ("limits", limits), ("comparison", comparison))
    }
    benchmark = Benchmark(
        name="matmul",
        workload="matmul",
        settings={"backend": "torch"},
        axes={},
        effort=Effort(),
        expectations=(changed["limits"], changed["comparison"]),  # type: ignore[arg-type]
    )
    table = ExpectedTable(name="t", description="", rows=(changed["row"],))  # type: ignore[arg-type]
    folder = run_folder(tmp_path)
    folder.write_manifest(
        replace(manifest, suite=replace(manifest.suite, benchmarks=(benchmark,)), tables={"t": table})
    )
    with pytest.raises(RunFolderError, match=message):
        folder.read_manifest()


def test_what_a_suite_and_an_option_may_have_at_most_is_read(tmp_path: Path, manifest: Manifest) -> None:
    """Else a run could be measured, and not be reported; the options' own limits are the command's."""
    most_s = Duration().convert("168h", None, None)
    with pytest.raises(UsageError):
        Duration().convert("168h1s", None, None)
    (point,) = manifest.plan.points
    effort = Effort(attempts=100, max_attempts=1000, steps=10_000, time_limit_s=86_400)
    plan = Plan(points=(replace(point, effort=effort),), skips=())
    large = replace(manifest, plan=plan, options=PlanOptions(time_limit_s=most_s))
    folder = run_folder(tmp_path)
    folder.write_manifest(large)
    assert folder.read_manifest() == large


@pytest.mark.parametrize("change", ["removed", "shortened", "replaced"])
def test_a_journal_that_changes_meanwhile_is_refused(tmp_path: Path, change: str) -> None:
    """A run whose records vanish ends in an error, not in a verdict over what is left in memory."""
    folder = run_folder(tmp_path)
    folder.journal.append(record(1))
    folder.journal.append(record(2))
    path = folder.path / "journal.jsonl"
    match change:
        case "removed":
            path.unlink()
        case "shortened":
            path.write_bytes(_lines(folder)[0])
        case "replaced":
            path.write_bytes(b"")
    with pytest.raises(RunFolderError, match=r"journal\.jsonl: "):
        folder.journal.append(record(3))
    with pytest.raises(RunFolderError, match=r"journal\.jsonl: "):
        folder.journal.require_complete()


@pytest.mark.parametrize("name", ["journal.jsonl", "lock", "results.json", "attempts", "attempts/decode_a.1"])
def test_nothing_is_written_through_a_link(tmp_path: Path, name: str) -> None:
    """A folder from someone else may hold links to this user's files: those stay as they are."""
    folder = run_folder(tmp_path)
    away = tmp_path / "away"
    away.mkdir()
    (away / "precious").write_text("kept")
    link = folder.path / name
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(away if "attempts" in name else away / "precious")
    actions: dict[str, Callable[[], object]] = {
        "journal.jsonl": lambda: folder.journal.append(record(1)),
        "lock": lambda: folder.lock().__enter__(),
        "results.json": lambda: folder.write_report("results.json", "{}"),
        "attempts": lambda: folder.fresh_attempt("decode[a]", 1),
        "attempts/decode_a.1": lambda: folder.fresh_attempt("decode[a]", 1),
    }
    if name == "results.json":
        actions[name]()
        assert not link.is_symlink()
    else:
        with pytest.raises(RunFolderError):
            actions[name]()
    assert [path.name for path in away.iterdir()] == ["precious"]
    assert (away / "precious").read_text() == "kept"


@pytest.mark.parametrize("name", ["manifest.json", "journal.jsonl"])
@pytest.mark.parametrize("kind", ["pipe", "device", "endless link", "sparse"])
def test_only_regular_files_of_a_bounded_size_are_read(tmp_path: Path, name: str, kind: str) -> None:
    """Nothing waits for a pipe, nothing reads a device, no file fills the memory."""
    folder = run_folder(tmp_path)
    path = folder.path / name
    path.unlink(missing_ok=True)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            try:
                os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
            except PermissionError:
                pytest.skip("makes no devices")
        case "endless link":
            path.symlink_to("/dev/zero")
        case "sparse":
            with path.open("wb") as stream:
                stream.truncate(2**40)
    with pytest.raises(RunFolderError, match=name.replace(".", r"\.")):
        folder.read_manifest() if name == "manifest.json" else folder.journal.records()


def test_an_attempts_folder_is_empty(tmp_path: Path) -> None:
    """Files of an interrupted attempt are removed; links are not followed."""
    folder = run_folder(tmp_path)
    first = folder.fresh_attempt("decode[a]", 1)
    (first / "exchange").mkdir()
    (first / "exchange" / "events.0.jsonl").write_text("old")
    (tmp_path / "precious").mkdir()
    (first / "link").symlink_to(tmp_path / "precious")
    assert folder.fresh_attempt("decode[a]", 1) == first
    assert list(first.iterdir()) == []
    assert (tmp_path / "precious").is_dir()


def test_a_folder_of_another_user_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading it is harmless; resuming it would run its worker and write its files."""
    folder = run_folder(tmp_path)
    folder.require_owner()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(RunFolderError, match="belongs to another user; start a new run instead"):
        folder.require_owner()
