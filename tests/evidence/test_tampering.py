"""Each way of tampering with a run is found and named, also where checksums and reports were made again after it."""

from __future__ import annotations

import errno
import io
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from pybench import __version__
from pybench.cli.main import main
from pybench.core.provenance import fingerprint, run_fields
from pybench.evidence.verify import verify_folder
from pybench.files.run.folder import attempt_name
from pybench.model.errors import RunFolderError
from pybench.model.machine import Host, Machine
from pybench.model.manifest import Manifest
from pybench.model.record import Record
from pybench.model.wire import Failure
from pybench.power.trace import PowerTrace
from pybench.report.formats import REPORT_FILES
from pybench.run.engines.stage import worker_digest
from tests.evidence.forgery import Forgery, cheaper, faster, unmeasured

FIRST = "decode[tensor_parallel=1], attempt 1"
SECOND = "decode[tensor_parallel=2], attempt 1"
THIRD = "decode[tensor_parallel=2], attempt 2"
LAST = "decode[tensor_parallel=1], attempt 2"
TWO = "decode[tensor_parallel=2]"
LEFT_OUT = ("left out: 2 GPUs (1 here)", "2 GPUs (1 here)")
SECOND_NS = 1_000_000_000


Change = Callable[[Forgery], object]


def _table(manifest: Manifest) -> Manifest:
    table = manifest.tables["drill"]
    return replace(manifest, tables={"drill": replace(table, rows=(replace(table.rows[0], tolerance=0.9),))})


def _suite(manifest: Manifest) -> Manifest:
    (benchmark,) = manifest.suite.benchmarks
    return replace(manifest, suite=replace(manifest.suite, benchmarks=(replace(benchmark, expectations=()),)))


def _one_point(forgery: Forgery) -> None:
    records = [record for record in forgery.records if record.point_id.endswith("=1]")]
    forgery.manifest(lambda m: replace(m, plan=replace(m.plan, points=m.plan.points[:1])))
    forgery.journal(records)
    for folder in forgery.path.glob("attempts/*parallel=2*"):
        shutil.rmtree(folder)


def _machine(manifest: Manifest) -> Manifest:
    gpus = tuple(replace(gpu, power_limit_w=900.0) for gpu in manifest.machine.gpus)
    return replace(manifest, machine=replace(manifest.machine, gpus=gpus))


def _of_machine(change: Callable[[Machine], Machine]) -> Change:
    """An edit of derived values: the fingerprint covers the GPUs themselves."""
    return lambda forgery: forgery.manifest(lambda m: replace(m, machine=change(m.machine)))


def _measured_and_left_out(forgery: Forgery) -> None:
    plan = forgery.folder.read_manifest().plan
    unmeasured(forgery, TWO, "left_out", *LEFT_OUT)
    forgery.manifest(lambda m: replace(m, plan=replace(m.plan, points=plan.points)))


def _over_hosts(manifest: Manifest, *machines: Machine) -> Manifest:
    """With a fingerprint that fits."""
    hosts = tuple(
        Host(name=name, machine=machine, boot_id=name, time_offset_ns=0, pybench_version="", worker_sha256="")
        for name, machine in zip("ab", machines, strict=False)
    )
    return replace(manifest, machines=hosts, fingerprint=fingerprint(run_fields(manifest.machine, hosts)))


def _fewer_gpus_by_options(manifest: Manifest) -> Manifest:
    return replace(manifest, options=replace(manifest.options, max_gpus=1))


def _interrupted(forgery: Forgery, num_records: int) -> None:
    """After so many attempts, with reports of them; an attempt less of a whole run is the same."""
    kept, rest = forgery.records[:num_records], forgery.records[num_records:]
    for record in rest:
        shutil.rmtree(forgery.path / "attempts" / attempt_name(record.point_id, record.attempt))
    forgery.journal(kept)


def _interrupted_behind_a_failure(forgery: Forgery) -> None:
    """Its first attempt was killed: the verdict is an error."""
    killed = Failure(cause="signal", message="ended by signal 9")
    forgery.record(
        0, lambda r: replace(r, failure=killed, energy=None, energy_reason="the attempt failed", conditions=())
    )
    _interrupted(forgery, 1)


def _false_pass(forgery: Forgery) -> None:
    _interrupted(forgery, 3)
    forgery.results(lambda results: results.update(verdict="pass"))


def _copied_attempt(forgery: Forgery) -> None:
    """The second attempt is the first once more, with all its files."""
    first, *rest = forgery.records
    attempts = forgery.path / "attempts"
    shutil.rmtree(attempts / "decode_tensor_parallel=1.2")
    shutil.copytree(attempts / "decode_tensor_parallel=1.1", attempts / "decode_tensor_parallel=1.2")
    log, trace = rest[-1].log, rest[-1].trace
    forgery.journal([first, *rest[:-1], replace(first, attempt=2, log=log, trace=trace)])


def _exchanged_traces(forgery: Forgery) -> None:
    first, *_, last = forgery.records
    assert first.trace is not None
    assert last.trace is not None
    one, other = forgery.path / first.trace, forgery.path / last.trace
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)


def _less_power(trace: PowerTrace) -> PowerTrace:
    gpus = []
    for gpu in trace.gpus:
        energy = np.asarray(gpu.counter.energy_mj)
        counter = replace(gpu.counter, energy_mj=energy[0] + (energy - energy[0]) * 9 // 10)
        series = replace(gpu.series, power_mw=[int(power_mw) * 9 // 10 for power_mw in gpu.series.power_mw])
        gpus.append(replace(gpu, counter=counter, series=series))
    return replace(trace, gpus=tuple(gpus))


def _pickled(forgery: Forgery) -> None:
    """A trace whose description is an object that runs code when it is unpickled."""
    name = forgery.records[0].trace
    assert name is not None
    file = io.BytesIO()
    np.savez(file, description=np.array([{"a": 1}], dtype=object))
    (forgery.path / name).write_bytes(file.getvalue())


def _bomb(forgery: Forgery) -> None:
    """A trace of a few KiB whose array's header has 2 TiB."""
    name = forgery.records[0].trace
    assert name is not None
    file = io.BytesIO()
    np.savez_compressed(file, description=np.zeros(2**18, dtype=np.int64))
    data = file.getvalue()
    (forgery.path / name).write_bytes(data.replace(b"PK\x05\x06", b"PK\x05\x07"))


def _worker(forgery: Forgery, *, sealed: bool) -> None:
    file = forgery.path / "worker" / "pybench" / "worker" / "__main__.py"
    file.write_text(file.read_text() + "\nimport this\n")
    if sealed:
        forgery.manifest(lambda m: replace(m, worker_sha256=worker_digest(forgery.path / "worker")))


def _link(forgery: Forgery) -> None:
    (forgery.path / "summary.md").unlink()
    (forgery.path / "summary.md").symlink_to("/etc/passwd")


def _number(values: dict[str, Any]) -> None:
    values["points"][0]["metrics"]["output_tokens_per_s"]["value"] *= 1.01


def _interval(values: dict[str, Any]) -> None:
    values["scaling"][0]["speedup_low"] = 1.99


def _flags(values: dict[str, Any]) -> None:
    values["points"][0]["flags"] = []


def _twice(forgery: Forgery) -> None:
    forgery.text("results.json", '  "verdict": "pass",', '  "verdict": "pass",\n  "verdict": "fail",')


TAMPERING: dict[str, tuple[Change, str, str]] = {
    "a figure of the results": (lambda f: f.results(_number), "results", "results.json"),
    "an interval of the results": (lambda f: f.results(_interval), "results", "results.json"),
    "a flag out of the results": (lambda f: f.results(_flags), "results", "results.json"),
    "a field out of the results": (lambda f: f.results(lambda v: v.pop("reason")), "results", "results.json"),
    "a field twice in the results": (_twice, "unreadable", "results.json"),
    "no number in the results": (
        lambda f: f.results(lambda v: v["scaling"][0].update(speedup=float("nan"))),
        "unreadable",
        "results.json",
    ),
    "an integer above every float": (
        lambda f: f.results(lambda v: v["points"][0].update(attempts=10**400)),
        "results",
        "results.json",
    ),
    "results many times as long": (
        lambda f: (f.path / "results.json").write_bytes(b"[]," * 2**21),
        "unreadable",
        "results.json",
    ),
    "a pass that owes an attempt": (_false_pass, "results", "results.json"),
    "a byte of the journal": (lambda f: f.text("journal.jsonl", '"attempt": 2', '"attempt": 3'), "unreadable", ""),
    "a byte of the manifest": (
        lambda f: f.text("manifest.json", '"tolerance": 0.1', '"tolerance": 0.9'),
        "unreadable",
        "",
    ),
    "joules, sealed": (lambda f: f.record(0, cheaper), "joules", FIRST),
    "step times, sealed": (lambda f: f.record(0, faster), "joules", FIRST),
    "no throttling, sealed": (
        lambda f: f.record(
            1, lambda r: replace(r, conditions=tuple(replace(c, clock_event_reasons=0) for c in r.conditions))
        ),
        "joules",
        SECOND,
    ),
    "an attempt twice, sealed": (_copied_attempt, "order", LAST),
    "no trace": (lambda f: (f.path / str(f.records[0].trace)).unlink(), "unreadable", FIRST),
    "no trace, sealed": (lambda f: f.record(0, lambda r: replace(r, trace=None)), "joules", FIRST),
    "traces exchanged": (_exchanged_traces, "joules", FIRST),
    "a trace with less power": (lambda f: f.trace(0, _less_power), "joules", FIRST),
    "a trace of fewer GPUs": (lambda f: f.trace(1, lambda t: replace(t, gpus=t.gpus[:1])), "joules", SECOND),
    "a trace with an object inside": (_pickled, "unreadable", FIRST),
    "a trace that unpacks to anything": (_bomb, "unreadable", FIRST),
    "a trace outside of the folder": (
        lambda f: f.record(0, lambda r: replace(r, trace="../../etc/passwd")),
        "unreadable",
        FIRST,
    ),
    "a looser table, sealed": (lambda f: f.manifest(_table), "suite", "table drill"),
    "no table, sealed": (
        lambda f: f.folder.write_manifest(replace(f.folder.read_manifest(), tables={})),
        "unreadable",
        "20",
    ),
    "no expectation, sealed": (lambda f: f.manifest(_suite), "suite", "suite drill"),
    "another profile, sealed": (
        lambda f: f.manifest(lambda m: replace(m, suite=replace(m.suite, profile="h100"))),
        "suite",
        "suite drill",
    ),
    "another description, sealed": (
        lambda f: f.manifest(lambda m: replace(m, suite=replace(m.suite, description="verified by NVIDIA"))),
        "suite",
        "suite drill",
    ),
    "a point out of the plan, sealed": (_one_point, "plan", TWO),
    "a point left out, sealed": (lambda f: unmeasured(f, TWO, "left_out", *LEFT_OUT), "plan", TWO),
    "a point skipped, sealed": (lambda f: unmeasured(f, TWO, "skips", "needs more memory"), "plan", TWO),
    "a point left out by a time limit that the run has not, sealed": (
        lambda f: unmeasured(f, TWO, "left_out", "2 attempts of about 9m", "points beyond --time-limit 1m"),
        "plan",
        TWO,
    ),
    "a point measured and left out, sealed": (_measured_and_left_out, "plan", TWO),
    "fewer GPUs by the options, sealed": (lambda f: f.manifest(_fewer_gpus_by_options), "plan", TWO),
    "another kind of machine, sealed": (
        _of_machine(lambda m: replace(m, kind="b200")),
        "machine",
        "manifest.json",
    ),
    "another number of GPUs, sealed": (_of_machine(lambda m: replace(m, gpu_count=8)), "machine", "manifest.json"),
    "another device, sealed": (
        lambda f: f.manifest(lambda m: replace(m, device="cpu")),
        "machine",
        "manifest.json",
    ),
    "another kind of a second host, sealed": (
        lambda f: f.manifest(lambda m: _over_hosts(m, m.machine, replace(m.machine, kind="b200"))),
        "machine",
        "manifest.json",
    ),
    "a machine": (lambda f: f.manifest(_machine), "machine", "manifest.json"),
    "the worker": (lambda f: _worker(f, sealed=False), "worker", "worker"),
    "the worker, sealed": (lambda f: _worker(f, sealed=True), "worker", "worker"),
    "a link instead of a file": (_link, "unreadable", ""),
}
"""Way of tampering: change, kind and place of the discrepancy that names it."""


def test_the_original_holds(original: Path) -> None:
    """Every figure is worked out again, and nothing is left unchecked."""
    found = verify_folder(original, original.parents[1] / "drill.toml")
    assert found.discrepancies == ()
    assert (found.checked["attempts"], found.checked["traces"], found.verdict) == (4, 4, "pass")
    assert found.checked["figures"] > 300


@pytest.mark.parametrize("name", TAMPERING)
def test_tampering_is_named(forgery: Forgery, original: Path, name: str) -> None:
    """With its kind and the place that it concerns."""
    change, kind, place = TAMPERING[name]
    change(forgery)
    verification = forgery.verified()
    assert not verification.holds
    faults = [each for each in verification.discrepancies if each.state == "does not hold"]
    assert any(each.kind == kind and each.place.startswith(place) for each in faults), faults


@pytest.mark.parametrize("name", ["summary.md", "report.html", "junit.xml"])
def test_a_text_report_is_no_evidence(forgery: Forgery, original: Path, name: str) -> None:
    """Its words may change with any build; all its figures are in results.json."""
    (forgery.path / name).write_text("other words")
    assert forgery.verified().discrepancies == ()


def test_a_run_that_is_closed_to_this_user_is_accused_of_nothing(
    original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may not read a file learns that, and no verdict on the run."""

    def closed(*_given: object) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("pybench.files.run.journal.read_file", closed)
    with pytest.raises(RunFolderError, match="cannot read the journal: Permission denied; change its permissions"):
        verify_folder(original)


def test_a_stepped_wall_clock_accuses_nobody(forgery: Forgery, original: Path) -> None:
    """Records of one boot are ordered by its monotonic clock; NTP may set the wall clock back at any time."""
    earlier = "2020-01-01T00:00:00+00:00"
    forgery.record(2, lambda r: replace(r, started_utc=earlier))
    assert forgery.verified().discrepancies == ()
    rank = forgery.records[2].ranks[0]
    header = replace(rank.header, boot_id="another")
    forgery.record(2, lambda r: replace(r, ranks=tuple(replace(one, header=header) for one in r.ranks)))
    verification = forgery.verified()
    assert [(each.kind, each.state) for each in verification.discrepancies] == [("order", "not checked")]


def test_a_suite_of_ones_own_is_not_fully_checked(original: Path) -> None:
    """Nothing that pybench comes with shows what it should be."""
    found = verify_folder(original)
    assert (found.holds, found.complete) == (True, False)
    assert [each.place for each in found.discrepancies] == ["table drill", "suite drill"]


def test_the_suite_that_a_run_is_held_against_is_named(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compared with the user's file if given, else with the shipped suite."""
    other = tmp_path / "drill.toml"
    other.write_text((original.parents[1] / "drill.toml").read_text().replace("steps = 3", "steps = 4"))
    text = f"differs from {other}: effort of benchmark decode"
    assert text in [each.text for each in verify_folder(original, other).discrepancies]
    monkeypatch.setattr("pybench.evidence.plan.shipped_suites", lambda: tmp_path)
    assert text in [each.text for each in verify_folder(original).discrepancies]


def test_a_place_is_within_the_folder_by_any_path(forgery: Forgery, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged line is named by its file, wherever verify is run."""
    with (forgery.path / "journal.jsonl").open("a") as journal:
        journal.write("{}\n")
    whole = verify_folder(forgery.path)
    for folder in (forgery.path.parent, forgery.path):
        monkeypatch.chdir(folder)
        assert verify_folder(forgery.path.relative_to(folder)) == whole
    (one,) = whole.discrepancies
    assert one.place == forgery.path.name
    assert one.text.startswith("journal.jsonl:5: ")


def _killed(forgery: Forgery) -> None:
    """In its last attempt, before any report."""
    for name in REPORT_FILES.values():
        (forgery.path / name).unlink()
    *records, _ = (forgery.path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (forgery.path / "journal.jsonl").write_bytes(b"".join(records))


@pytest.mark.parametrize(
    ("stop", "num_owed"),
    [
        (_killed, 2),
        (lambda f: _interrupted(f, 1), 3),
        (lambda f: _interrupted(f, 3), 1),
        (lambda f: f.journal(f.records[:-1]), 1),
        (_interrupted_behind_a_failure, 3),
    ],
    ids=["killed", "a point missing", "an attempt less", "a record less", "a failure"],
)
def test_a_run_that_was_stopped_is_unfinished(
    forgery: Forgery, original: Path, stop: Callable[[Forgery], object], num_owed: int
) -> None:
    """It claims no verdict: nothing accuses it, and the next step is named. Edits still count."""
    stop(forgery)
    arguments = ["verify", str(forgery.path), "--suite", str(forgery.suite)]
    done = CliRunner().invoke(main, arguments)
    lines = done.stdout.splitlines()
    assert (done.exit_code, lines[0]) == (4, f"UNFINISHED  {original.name}"), done.output
    assert lines[1].endswith("finish the run with: pybench run --resume RUN")
    assert f"\nUnfinished ({num_owed})\n" in done.stdout
    assert f"  {LAST}: no record; finish the run with" in done.stdout
    (forgery.path / "worker" / "pybench" / "model" / "wire.py").write_text("")
    edited = CliRunner().invoke(main, arguments)
    assert (edited.exit_code, edited.stdout.split("  ")[0]) == (1, "DOES NOT HOLD")


def _by_another_build(forgery: Forgery) -> None:
    """With another worker and other words in its reports."""
    source = forgery.path / "worker" / "pybench" / "worker" / "seeds.py"
    source.write_text(source.read_text() + "# a comment\n")
    forgery.text("summary.md", "drill: pass", "drill passes")
    forgery.manifest(lambda m: replace(m, build="f00d", worker_sha256=worker_digest(forgery.path / "worker")))


def test_another_build_of_one_version_is_accused_of_nothing(forgery: Forgery, original: Path) -> None:
    """One line says that its formulas and words may differ; figures that agree are checked: exit code 0."""
    _by_another_build(forgery)
    done = CliRunner().invoke(main, ["verify", str(forgery.path), "--suite", str(forgery.suite)])
    assert (done.exit_code, done.stdout.split()[0]) == (0, "HOLDS"), done.output
    lines = " ".join(done.stdout.split())
    assert f"Not checked (1) manifest.json: another build: pybench {__version__}, build f00d;" in lines


def test_a_figure_that_another_build_has_otherwise_is_not_checked(forgery: Forgery, original: Path) -> None:
    """An edit or another formula: nothing shows which. What rules and words of a build decide is not compared."""
    _by_another_build(forgery)
    forgery.results(lambda v: v.update(reason="other words", new_field=1, counts={"passed": 7}))
    suite = original.parents[1] / "drill.toml"
    assert forgery.verified().complete
    forgery.results(_number)
    verification = forgery.verified()
    assert (verification.holds, verification.complete, verification.other_build) == (True, False, "f00d")
    assert [each.kind for each in verification.discrepancies] == ["build", "results"]
    assert verify_folder(original, suite).other_build is None


@pytest.mark.parametrize(("width", "kinds"), [(0.8, ["build"]), (0.5, ["build", "joules"])])
def test_bounds_of_another_build_may_differ_by_a_little(forgery: Forgery, width: float, kinds: list[str]) -> None:
    """It may count other errors of a sensor. Bounds of half the width are named."""

    def narrower(record: Record) -> Record:
        assert record.energy is not None
        gpus = []
        for gpu in record.energy.gpus:
            assert gpu.energy_low_j is not None
            assert gpu.energy_high_j is not None
            cut_j = (1 - width) / 2 * (gpu.energy_high_j - gpu.energy_low_j)
            gpus.append(replace(gpu, energy_low_j=gpu.energy_low_j + cut_j, energy_high_j=gpu.energy_high_j - cut_j))
        return replace(record, energy=replace(record.energy, gpus=tuple(gpus)))

    _by_another_build(forgery)
    forgery.record(0, narrower)
    assert [each.kind for each in forgery.verified().discrepancies] == kinds


def test_a_table_of_another_build_is_judged_by_the_trusted_one(
    forgery: Forgery, original: Path, tmp_path: Path
) -> None:
    """Its limits may differ as long as the verdict is the same by the trusted table."""
    _by_another_build(forgery)
    forgery.manifest(_table)
    suite = original.parents[1] / "drill.toml"
    assert verify_folder(forgery.path, suite).complete
    trusted = tmp_path / "trusted"
    shutil.copytree(suite.parent / "expected", trusted / "expected")
    shutil.copy(suite, trusted)
    table = trusted / "expected" / "drill.toml"
    table.write_text(table.read_text().replace("value = 2.0", "value = 2.4"))
    verification = verify_folder(forgery.path, trusted / "drill.toml")
    assert (verification.holds, verification.complete) == (True, False)
    assert [each.kind for each in verification.discrepancies] == ["build", "suite"]


def test_a_plan_that_another_build_has_otherwise_is_not_checked(forgery: Forgery, original: Path) -> None:
    """Kinds of machines and reasons of skips may have changed."""
    unmeasured(forgery, TWO, "skips", "needs about 300 GiB a GPU")
    forgery.manifest(lambda m: replace(m, build="f00d", machine=replace(m.machine, kind="unknown-h200")))
    verification = forgery.verified()
    assert (verification.holds, verification.complete) == (True, False)
    assert {each.kind for each in verification.discrepancies} >= {"build", "machine", "plan"}
