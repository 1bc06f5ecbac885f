"""Each way of tampering with a run is found and named, also where checksums and reports were made again after it."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from pybench.cli.main import main
from pybench.core.fingerprint import fingerprint, machine_fields, run_fields
from pybench.evidence import reports
from pybench.evidence.verify import verify_folder
from pybench.files.run.folder import attempt_name
from pybench.model.container import ContainerRun
from pybench.model.host import Host
from pybench.model.machine import Machine
from pybench.model.manifest import Manifest
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


def _machine(manifest: Manifest, *, sealed: bool) -> Manifest:
    gpus = tuple(replace(gpu, name="NVIDIA H300", power_limit_w=900.0) for gpu in manifest.machine.gpus)
    machine = replace(manifest.machine, gpus=gpus)
    print_ = fingerprint(machine_fields(machine)) if sealed else manifest.fingerprint
    return replace(manifest, machine=machine, fingerprint=print_)


def _of_machine(change: Callable[[Machine], Machine]) -> Change:
    """What is derived of the GPUs is edited: the fingerprint is of the GPUs themselves."""
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


def _led_by_another(manifest: Manifest) -> Manifest:
    return _over_hosts(manifest, replace(manifest.machine, cuda_driver="99"))


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


def _order(forgery: Forgery, factor: float) -> None:
    """The page sorts by another figure: the first with a fraction, times ``factor``."""
    page = (forgery.path / "report.html").read_text()
    found = re.search(r'data-order="(\d+\.\d+)"', page)
    assert found is not None
    changed = repr(float(found[1]) * factor)
    assert changed != found[1]
    forgery.text("report.html", found[0], f'data-order="{changed}"')


def _copied_attempt(forgery: Forgery) -> None:
    """The second attempt is the first once more, with all its files."""
    first, *rest = forgery.records
    attempts = forgery.path / "attempts"
    shutil.rmtree(attempts / "decode_tensor_parallel=1.2")
    shutil.copytree(attempts / "decode_tensor_parallel=1.1", attempts / "decode_tensor_parallel=1.2")
    log, trace = rest[-1].log, rest[-1].trace
    forgery.journal([first, *rest[:-1], replace(first, attempt=2, log=log, trace=trace)])


def _hidden_attempt(forgery: Forgery) -> None:
    failure = Failure(cause="exception", message="it was slow")
    forgery.record(-1, lambda r: replace(r, failure=failure, energy=None, energy_reason="the attempt failed"))


def _exchanged_traces(forgery: Forgery) -> None:
    first, *_, last = forgery.records
    assert first.trace is not None
    assert last.trace is not None
    one, other = forgery.path / first.trace, forgery.path / last.trace
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)


def _cut(trace: PowerTrace) -> PowerTrace:
    """Ends half a second before it did, with the readings until then."""
    end_ns = trace.end_ns - SECOND_NS
    cut = [
        replace(
            gpu,
            counter=replace(gpu.counter, before_ns=(), after_ns=(), energy_mj=()),
            series=replace(gpu.series, realtime_ns=gpu.series.realtime_ns[:9], power_mw=gpu.series.power_mw[:9]),
            polled=replace(gpu.polled, t_ns=(), instant_mw=(), average_mw=(), memory_mw=()),
        )
        for gpu in trace.gpus
    ]
    return replace(trace, gpus=tuple(cut), end_ns=max(end_ns, trace.start_ns))


def _short(trace: PowerTrace) -> PowerTrace:
    return replace(trace, gpus=tuple(replace(gpu, **vars(_cut(trace).gpus[0])) for gpu in trace.gpus))


def _less_power(trace: PowerTrace) -> PowerTrace:
    gpus = []
    for gpu in trace.gpus:
        energy = np.asarray(gpu.counter.energy_mj)
        counter = replace(gpu.counter, energy_mj=energy[0] + (energy - energy[0]) * 9 // 10)
        series = replace(gpu.series, power_mw=[int(power_mw) * 9 // 10 for power_mw in gpu.series.power_mw])
        gpus.append(replace(gpu, counter=counter, series=series))
    return replace(trace, gpus=tuple(gpus))


def _later(trace: PowerTrace) -> PowerTrace:
    def late(times_ns: Sequence[int]) -> list[int]:
        return [int(time_ns) + 86_400 * SECOND_NS for time_ns in times_ns]

    gpus = [replace(gpu, series=replace(gpu.series, realtime_ns=late(gpu.series.realtime_ns))) for gpu in trace.gpus]
    offsets = replace(trace.offsets, realtime_offset_ns=late(trace.offsets.realtime_offset_ns))
    return replace(trace, gpus=tuple(gpus), offsets=offsets)


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


def _no_events(forgery: Forgery) -> None:
    for exchange in forgery.path.glob("attempts/*/exchange"):
        shutil.rmtree(exchange)


def _number(values: dict[str, Any]) -> None:
    values["points"][0]["metrics"]["output_tokens_per_s"]["value"] *= 1.01


def _interval(values: dict[str, Any]) -> None:
    values["scaling"][0]["speedup_low"] = 1.99


def _flags(values: dict[str, Any]) -> None:
    values["points"][0]["flags"] = []


def _twice(forgery: Forgery) -> None:
    forgery.text("results.json", '  "verdict": "pass",', '  "verdict": "pass",\n  "verdict": "fail",')


TAMPERING: dict[str, tuple[Change, str, str]] = {
    "a figure of the results": (
        lambda f: f.results(_number),
        "results.json",
        "points[decode[tensor_parallel=1]].metrics.output_tokens_per_s.value: 20.2",
    ),
    "an interval of the results": (lambda f: f.results(_interval), "results.json", "speedup_low: 1.99 is claimed"),
    "the verdict of the results": (
        lambda f: f.results(lambda v: v.update(verdict="fail")),
        "results.json",
        "verdict: 'fail' is claimed, 'pass' follows",
    ),
    "flags of the results": (lambda f: f.results(_flags), "results.json", "flags: 0 entries are claimed, 1 follow"),
    "a point out of the results": (
        lambda f: f.results(lambda v: v["points"].pop()),
        "results.json",
        "points[decode[tensor_parallel=2]]: is not claimed, but follows",
    ),
    "a check out of the results": (
        lambda f: f.results(lambda v: v["scaling"].pop()),
        "results.json",
        "scaling: 0 entries are claimed, 1 follow",
    ),
    "a field out of the results": (
        lambda f: f.results(lambda v: v.pop("reason")),
        "results.json",
        "reason: nothing is claimed",
    ),
    "a field twice in the results": (_twice, "results.json", "a name comes twice in one object"),
    "no number in the results": (
        lambda f: f.results(lambda v: v["scaling"][0].update(speedup=float("nan"))),
        "results.json",
        "NaN is no value of JSON",
    ),
    "an integer above every float": (
        lambda f: f.results(lambda v: v["points"][0].update(attempts=10**400)),
        "results.json",
        "points[decode[tensor_parallel=1]].attempts: 1000000000",
    ),
    "no results": (lambda f: (f.path / "results.json").unlink(), "results.json", "cannot be read"),
    "the Markdown report": (
        lambda f: f.text("summary.md", "drill: pass", "drill: faster than all others"),
        "summary.md",
        "it was edited",
    ),
    "the page": (lambda f: f.text("report.html", "drill", "burn"), "report.html", "it was edited"),
    "a figure that the page sorts by": (lambda f: _order(f, 1 + 1e-6), "report.html", "it was edited"),
    "the JUnit report": (lambda f: f.text("junit.xml", "testcase", "testCase"), "junit.xml", "it was edited"),
    "a byte of the journal": (
        lambda f: f.text("journal.jsonl", '"attempt": 2', '"attempt": 3'),
        "",
        "its checksum does not fit",
    ),
    "a byte of the manifest": (
        lambda f: f.text("manifest.json", '"tolerance": 0.1', '"tolerance": 0.9'),
        "",
        "its checksum does not fit",
    ),
    "step times, sealed": (lambda f: f.record(0, faster), FIRST, "rank 0: steps differ at 0, 1, 2 from"),
    "joules, sealed": (lambda f: f.record(0, cheaper), FIRST, "energy.gpus[GPU-00000000-fake-4000-8000-000000000000]"),
    "no throttling, sealed": (
        lambda f: f.record(
            1, lambda r: replace(r, conditions=tuple(replace(c, clock_event_reasons=0) for c in r.conditions))
        ),
        SECOND,
        "clock_event_reasons: 0 is claimed, 4 follows from the power trace",
    ),
    "other memory, sealed": (
        lambda f: f.record(0, lambda r: replace(r, ranks=(replace(r.ranks[0], metrics=()),))),
        FIRST,
        "rank 0: metrics has 0 entries, not 1",
    ),
    "a pass that owes an attempt": (
        _false_pass,
        "results.json",
        "verdict: 'pass' is claimed, 'missing' follows",
    ),
    "an attempt counted as failed, sealed": (_hidden_attempt, LAST, "its worker measured it to its end"),
    "an attempt twice, sealed": (_copied_attempt, LAST, f"its steps begin before those of {THIRD} end"),
    "a longer attempt, sealed": (
        lambda f: f.record(0, lambda r: replace(r, duration_s=0.01)),
        FIRST,
        "it lasted 0.010 s",
    ),
    "a start-up before the attempt, sealed": (
        lambda f: f.record(0, lambda r: replace(r, startup_s=-5.0)),
        FIRST,
        "started up in -5.000 s, which no process does",
    ),
    "a start-up beyond the attempt, sealed": (
        lambda f: f.record(0, lambda r: replace(r, startup_s=1e6)),
        FIRST,
        "started up in 1000000.000 s, its steps span 0.",
    ),
    "a start-up and steps that do not fit the attempt, sealed": (
        lambda f: f.record(0, lambda r: replace(r, startup_s=r.duration_s - 0.1)),
        FIRST,
        "s, its steps span 0.",
    ),
    "no start-up, sealed": (lambda f: f.record(0, lambda r: replace(r, startup_s=None)), FIRST, "has no start-up"),
    "a start-up of a warm process, sealed": (
        lambda f: f.record(1, lambda r: replace(r, warm_after=("decode[tensor_parallel=1]",))),
        SECOND,
        "in a process that had measured decode[tensor_parallel=1] before",
    ),
    "a duration beyond the next attempt, sealed": (
        lambda f: f.record(0, lambda r: replace(r, duration_s=1e9)),
        FIRST,
        "lasted 1000000000.000 s from ",
    ),
    "another profile, sealed": (
        lambda f: f.manifest(lambda m: replace(m, suite=replace(m.suite, profile="h100"))),
        "suite drill",
        "profile: 'h100' is claimed, None follows from the suite and the machine",
    ),
    "another description, sealed": (
        lambda f: f.manifest(lambda m: replace(m, suite=replace(m.suite, description="verified by NVIDIA"))),
        "suite drill",
        "/drill.toml: its description",
    ),
    "an id of another suite, sealed": (
        lambda f: f.manifest(lambda m: replace(m, run_id=m.run_id.replace("drill", "burn"))),
        "manifest.json",
        "is claimed, a run of this suite has its time and -drill",
    ),
    "an id without a time, sealed": (
        lambda f: f.manifest(lambda m: replace(m, run_id="20269999T000000Z-drill")),
        "manifest.json",
        "run_id: '20269999T000000Z-drill' is claimed, a run of this suite has its time and -drill",
    ),
    "another creation, sealed": (
        lambda f: f.manifest(lambda m: replace(m, created_utc="2020-01-01T00:00:00+00:00")),
        "manifest.json",
        "created_utc: 2020-01-01T00:00:00+00:00 is claimed, its run_id is 20",
    ),
    "another date, sealed": (
        lambda f: f.record(0, lambda r: replace(r, started_utc="2020-01-01T00:00:00+00:00")),
        FIRST,
        "began 2020-01-01T00:00:00+00:00, before the run",
    ),
    "another container, sealed": (
        lambda f: f.record(
            0, lambda r: replace(r, container=ContainerRun(id="c", image_id="sha256:1", exit_code=0, start_s=1.0))
        ),
        FIRST,
        "ran in image sha256:1, which the run has not",
    ),
    "another GPU, sealed": (
        lambda f: f.record(
            0,
            lambda r: replace(
                r, ranks=(replace(r.ranks[0], header=replace(r.ranks[0].header, device_uuid="GPU-else")),)
            ),
        ),
        FIRST,
        "ran on GPU-else",
    ),
    "workers' events": (
        lambda f: f.text(
            "attempts/decode_tensor_parallel=1.1/exchange/events.0.jsonl", '"value": 1024.0', '"value": 1.0'
        ),
        FIRST,
        "rank 0: metrics differ at 0 from its worker's events",
    ),
    "workers' orders": (
        lambda f: f.text("attempts/decode_tensor_parallel=1.1/exchange/orders.jsonl", '"steps": 3', '"steps": 30'),
        FIRST,
        "was ordered something else than the plan has",
    ),
    "no counts of the driver, sealed": (
        lambda f: f.record(0, lambda r: replace(r, health=None)),
        FIRST,
        "no counts of the driver",
    ),
    "a warm process, sealed": (
        lambda f: f.record(0, lambda r: replace(r, warm_after=("decode[tensor_parallel=2]",))),
        FIRST,
        "does not name what its worker had measured before",
    ),
    "workers' events out": (_no_events, FIRST, "its worker's events are not there"),
    "no trace": (
        lambda f: (f.path / str(f.records[0].trace)).unlink(),
        FIRST,
        "cannot read the power trace: No such file",
    ),
    "no trace, sealed": (
        lambda f: f.record(0, lambda r: replace(r, trace=None)),
        FIRST,
        "joules without a power trace",
    ),
    "neither trace nor joules, sealed": (
        lambda f: f.record(0, lambda r: replace(r, trace=None, energy=None)),
        FIRST,
        "no power trace, though the run sampled power",
    ),
    "traces exchanged": (_exchanged_traces, FIRST, "the power trace does not cover the measured steps"),
    "a trace cut short": (lambda f: f.trace(0, _cut), FIRST, "does not cover the measured steps"),
    "readings cut short": (lambda f: f.trace(0, _short), FIRST, "no readings of the power trace cover"),
    "a trace with less power": (lambda f: f.trace(0, _less_power), FIRST, "energy_j: "),
    "a trace of another boot": (
        lambda f: f.trace(0, lambda t: replace(t, boot_id="another")),
        FIRST,
        "are of different boots",
    ),
    "a trace of another day": (lambda f: f.trace(0, _later), FIRST, "s after the attempt's start"),
    "a trace of another GPU": (
        lambda f: f.trace(0, lambda t: replace(t, gpus=(replace(t.gpus[0], uuid="GPU-else"),))),
        FIRST,
        "the power trace is of GPU-else",
    ),
    "a trace of fewer GPUs": (
        lambda f: f.trace(1, lambda t: replace(t, gpus=t.gpus[:1])),
        SECOND,
        "the power trace is of GPU-00000000-fake-4000-8000-000000000000, the ranks ran on",
    ),
    "a trace under another driver": (
        lambda f: f.trace(0, lambda t: replace(t, driver="999")),
        FIRST,
        "driver 999 in the power trace, 580.7.evidence in the machine",
    ),
    "a trace with an object inside": (_pickled, FIRST, "not a power trace"),
    "a trace that unpacks to anything": (_bomb, FIRST, "not a power trace"),
    "a trace outside of the folder": (
        lambda f: f.record(0, lambda r: replace(r, trace="../../etc/passwd")),
        FIRST,
        "cannot read the power trace",
    ),
    "a looser table, sealed": (lambda f: f.manifest(_table), "table drill", "row 1: tolerance"),
    "no table, sealed": (
        lambda f: f.folder.write_manifest(replace(f.folder.read_manifest(), tables={})),
        "20",
        "tables: holds no table 'drill', which suite.benchmarks.0.expectations.0 names",
    ),
    "no expectation, sealed": (lambda f: f.manifest(_suite), "suite drill", "expectations of benchmark decode"),
    "a point out of the plan, sealed": (_one_point, "decode[tensor_parallel=2]", "the plan does not"),
    "a point left out, sealed": (
        lambda f: unmeasured(f, TWO, "left_out", *LEFT_OUT),
        TWO,
        "left out (2 GPUs (1 here)) in the plan, measured by the suite on that machine",
    ),
    "a point skipped, sealed": (
        lambda f: unmeasured(f, TWO, "skips", "needs more memory"),
        TWO,
        "skipped (needs more memory) in the plan, measured by the suite on that machine",
    ),
    "a point left out by a time limit that the run has not, sealed": (
        lambda f: unmeasured(f, TWO, "left_out", "2 attempts of about 9m", "points beyond --time-limit 1m"),
        TWO,
        "left out (2 attempts of about 9m) in the plan, measured by the suite on that machine",
    ),
    "a point measured and left out, sealed": (
        _measured_and_left_out,
        TWO,
        "measured and left out (2 GPUs (1 here)) in the plan, measured by the suite on that machine",
    ),
    "fewer GPUs by the options, sealed": (
        lambda f: f.manifest(_fewer_gpus_by_options),
        TWO,
        "measured in the plan, left out (left out by --max-gpus 1) by the suite on that machine",
    ),
    "another kind of machine, sealed": (
        _of_machine(lambda m: replace(m, kind="b200")),
        "manifest.json",
        "machine.kind: 'b200' is claimed, 'h200' follows from the GPUs that are listed",
    ),
    "another fabric, sealed": (
        _of_machine(lambda m: replace(m, fabric="none" if m.fabric != "none" else "nvlink")),
        "manifest.json",
        "machine.fabric: ",
    ),
    "other names of GPUs, sealed": (
        _of_machine(lambda m: replace(m, gpu_names=("NVIDIA B200", *m.gpu_names[1:]))),
        "manifest.json",
        "machine.gpu_names[0]: 'NVIDIA B200' is claimed, 'NVIDIA H200' follows",
    ),
    "another number of GPUs, sealed": (
        _of_machine(lambda m: replace(m, gpu_count=8)),
        "manifest.json",
        "machine.gpu_count: 8 is claimed, 2 follows",
    ),
    "other memory of GPUs, sealed": (
        _of_machine(lambda m: replace(m, gpu_vram_gib=(180.0, *m.gpu_vram_gib[1:]))),
        "manifest.json",
        "machine.gpu_vram_gib[0]: 180 is claimed, 139.7 follows",
    ),
    "another device, sealed": (
        lambda f: f.manifest(lambda m: replace(m, device="cpu")),
        "manifest.json",
        "device: 'cpu' is claimed, 'cuda' follows from the machine",
    ),
    "another machine that leads, sealed": (
        lambda f: f.manifest(_led_by_another),
        "manifest.json",
        "host a leads the run, whose machine is another one",
    ),
    "another kind of a second host, sealed": (
        lambda f: f.manifest(lambda m: _over_hosts(m, m.machine, replace(m.machine, kind="b200"))),
        "manifest.json",
        "machine of host b.kind: 'b200' is claimed, 'h200' follows",
    ),
    "a machine": (lambda f: f.manifest(lambda m: _machine(m, sealed=False)), "manifest.json", "the machine was edited"),
    "a machine, sealed": (
        lambda f: f.manifest(lambda m: _machine(m, sealed=True)),
        FIRST,
        "rank 0 saw a NVIDIA H200, the machine has a NVIDIA H300",
    ),
    "the worker": (lambda f: _worker(f, sealed=False), "worker", "not the one that the manifest names"),
    "the worker, sealed": (lambda f: _worker(f, sealed=True), "worker", "not that of this pybench"),
    "a link instead of a file": (
        _link,
        "",
        "not a regular file",
    ),
}


def test_the_original_holds(original: Path) -> None:
    """Every figure is worked out again, and nothing is left unchecked."""
    found = verify_folder(original, original.parents[1] / "drill.toml")
    assert found.discrepancies == ()
    assert (found.checked["attempts"], found.checked["traces"], found.verdict) == (4, 4, "pass")
    assert found.checked["figures"] > 300


@pytest.mark.parametrize("name", TAMPERING)
def test_tampering_is_named(forgery: Forgery, original: Path, name: str) -> None:
    """With the place that it concerns, and in words."""
    change, place, text = TAMPERING[name]
    change(forgery)
    found = verify_folder(forgery.path, original.parents[1] / "drill.toml")
    assert not found.holds
    named = [f"{each.place}: {each.text}" for each in found.discrepancies if each.state == "does not hold"]
    assert any(line.startswith(place) and text in line for line in named), "\n".join(named)


def test_a_report_whose_check_breaks_off_is_named(
    forgery: Forgery, original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is in it: verify ends with what it found."""
    forgery.text("summary.md", "drill: pass", "drill: faster than all others")

    def fails(*_arguments: object) -> None:
        raise OverflowError("too large")

    monkeypatch.setattr(reports, "differences", fails)
    found = verify_folder(forgery.path, original.parents[1] / "drill.toml")
    assert [each.place for each in found.discrepancies] == ["results.json", "summary.md"]
    assert found.discrepancies[0].text == "cannot be checked: OverflowError: too large; it was edited"


def test_a_figures_last_digits_are_those_of_another_numpy(forgery: Forgery, original: Path) -> None:
    """Sums are taken in another order by another build: the page, too, holds there."""
    _order(forgery, 1 + 1e-14)
    assert verify_folder(forgery.path, original.parents[1] / "drill.toml").discrepancies == ()


def test_a_run_that_began_long_after_its_creation_is_not_fully_checked(forgery: Forgery, original: Path) -> None:
    """It may have been resumed, or its day is made up: that is named."""
    forgery.manifest(lambda m: replace(m, run_id="20200101T000000Z-drill", created_utc="2020-01-01T00:00:03+00:00"))
    found = verify_folder(forgery.path, original.parents[1] / "drill.toml")
    assert (found.holds, found.complete) == (True, False)
    (late,) = found.discrepancies
    assert late.place == FIRST
    assert late.text.endswith(
        "the run was created 2020-01-01T00:00:03+00:00: nothing shows whether it was resumed so late"
    )


def test_no_time_limit_leaves_out_an_attempt_before_one_that_was_made(forgery: Forgery, original: Path) -> None:
    """The attempts of a point are made in their order: the first one was removed."""
    forgery.manifest(lambda m: replace(m, options=replace(m.options, time_limit_s=600.0)))
    suite = original.parents[1] / "drill.toml"
    assert verify_folder(forgery.path, suite).holds
    forgery.journal(forgery.records[1:])
    shutil.rmtree(forgery.path / "attempts" / attempt_name(FIRST.partition(",")[0], 1))
    wrong = [found for found in verify_folder(forgery.path, suite).discrepancies if found.state == "does not hold"]
    assert (FIRST, "no record, though attempt 2 has one") in [(found.place, found.text) for found in wrong]


def test_an_attempt_far_beyond_its_time_limit_is_not_fully_checked(forgery: Forgery, original: Path) -> None:
    """The last one, which no other follows: its host may have been suspended."""
    forgery.record(-1, lambda r: replace(r, duration_s=1e6))
    found = verify_folder(forgery.path, original.parents[1] / "drill.toml")
    assert (found.holds, found.complete) == (True, False)
    (long,) = found.discrepancies
    assert (long.place, long.text.partition(": ")[0]) == (LAST, "lasted 1000000.000 s, its time limit is 60 s")


def test_a_suite_of_ones_own_is_not_fully_checked(original: Path) -> None:
    """Nothing that pybench comes with shows what it should be."""
    found = verify_folder(original)
    assert (found.holds, found.complete) == (True, False)
    assert [each.place for each in found.discrepancies] == ["table drill", "suite drill"]


def test_the_suite_that_a_run_is_held_against_is_named(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its file, where the user names one; else it is one of pybench's own."""
    other = tmp_path / "drill.toml"
    other.write_text((original.parents[1] / "drill.toml").read_text().replace("steps = 3", "steps = 4"))
    texts = [each.text for each in verify_folder(original, other).discrepancies]
    assert f"not the suite of {other}: effort of benchmark decode" in texts
    monkeypatch.setattr("pybench.evidence.origin.shipped_suites", lambda: tmp_path)
    texts = [each.text for each in verify_folder(original).discrepancies]
    assert "not the suite that pybench comes with: effort of benchmark decode" in texts


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
        (_killed, 3),
        (lambda f: _interrupted(f, 1), 3),
        (lambda f: _interrupted(f, 3), 1),
        (lambda f: f.journal(f.records[:-1]), 2),
        (_interrupted_behind_a_failure, 3),
    ],
    ids=["killed", "a point missing", "an attempt less", "a record less", "a failure"],
)
def test_a_run_that_was_stopped_is_unfinished(
    forgery: Forgery, original: Path, stop: Callable[[Forgery], object], num_owed: int
) -> None:
    """It claims no verdict: nothing accuses it, and the next step is named. An edit of what it has still counts."""
    stop(forgery)
    arguments = ["verify", str(forgery.path), "--suite", str(original.parents[1] / "drill.toml")]
    done = CliRunner().invoke(main, arguments)
    lines = done.stdout.splitlines()
    assert (done.exit_code, lines[0]) == (4, f"UNFINISHED  {original.name}"), done.output
    assert lines[1].endswith("finish the run with: pybench run --resume RUN")
    assert f"\nUnfinished ({num_owed})\n" in done.stdout
    assert f"  {LAST}: no record: a missing attempt, or" in done.stdout
    (forgery.path / "worker" / "pybench" / "model" / "wire.py").write_text("")
    edited = CliRunner().invoke(main, arguments)
    assert (edited.exit_code, edited.stdout.split("  ")[0]) == (1, "DOES NOT HOLD")


def test_another_version_may_derive_kinds_and_reasons_otherwise(forgery: Forgery, original: Path) -> None:
    """By GPU names that it knew, and estimates that it made: both are named, and nothing is proven."""
    unmeasured(forgery, TWO, "skips", "needs about 300 GiB a GPU")
    forgery.manifest(lambda m: replace(m, pybench_version="0.0.1", machine=replace(m.machine, kind="unknown-h200")))
    found = verify_folder(forgery.path, original.parents[1] / "drill.toml")
    assert (found.holds, found.complete) == (True, False)
    texts = {each.text for each in found.discrepancies if each.text.endswith("; check with pybench 0.0.1")}
    assert {text.split(";")[0] for text in texts} >= {
        "machine.kind: 'unknown-h200' is claimed, 'h200' follows from the GPUs that are listed",
        "skipped (needs about 300 GiB a GPU) in the plan, measured by the suite on that machine",
    }


def test_another_version_is_not_fully_checked(forgery: Forgery, original: Path) -> None:
    """Its worker and the words of its reports are not those of this one."""
    forgery.manifest(
        lambda m: replace(m, pybench_version="0.0.1", worker_sha256=worker_digest(forgery.path / "worker"))
    )
    found = verify_folder(forgery.path, original.parents[1] / "drill.toml")
    assert (found.holds, found.complete, found.other_version) == (True, False, "0.0.1")
    assert {each.place for each in found.discrepancies} >= {"summary.md"}
    assert verify_folder(original, original.parents[1] / "drill.toml").other_version is None
    assert json.loads((forgery.path / "results.json").read_text())["provenance"]["pybench_version"] == "0.0.1"
