"""A suite on this machine: its points, those left out with reasons, needs of its workers, and its limit of time."""

from __future__ import annotations

import functools
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import median

from pybench.core.gpu_models import is_of_gpus
from pybench.core.measurements import grouped
from pybench.core.plan import (
    NOTHING_REQUIRED,
    Required,
    expand,
    parse_filter,
    parse_required,
    skipped,
    with_effort,
    with_words,
    without,
)
from pybench.core.provenance import fingerprint, run_fields
from pybench.core.schedule import Attempt, within
from pybench.files.run.folder import earlier_runs
from pybench.files.shipped import find_suite, load_durations, load_models
from pybench.files.suite.file import read_suite
from pybench.model.backend import BACKENDS, install
from pybench.model.errors import MachineError, RunFolderError, UsageError
from pybench.model.machine import Host, Machine
from pybench.model.manifest import NO_OPTIONS, PlanOptions, time_limit_text
from pybench.model.record import Record
from pybench.model.servers import image_backend
from pybench.model.suite import NOT_INSTALLED, Plan, Suite
from pybench.model.text import abridged, listed, plural
from pybench.model.workloads.settings import NodeSettings, Settings
from pybench.run.engines.base import Launcher, LaunchRequirements


def plan_suite(
    path: Path,
    machine: Machine,
    options: PlanOptions = NO_OPTIONS,
    root: Path | None = None,
    hosts: Sequence[Host] = (),
    assumed_hosts: int | None = None,
    earlier_rates: Callable[..., str | None] | None = None,
) -> tuple[Suite, Plan]:
    """Read the suite at ``path``, or the shipped one of that name, and expand it for ``machine``, or all ``hosts``.

    With ``assumed_hosts``, so many like ``machine``, which are not here, are planned for. Runs below ``root`` show how
    long attempts take, which a time limit needs; where ``earlier_rates`` finds one, points that give rates are left to
    it. Raises ``FileError``, ``UsageError``, or ``MachineError`` where required GPUs lack that no point is missing for.
    """
    require_working_gpus(machine, options.profile)
    num_hosts = assumed_hosts or max(1, len(hosts))
    there = replace(machine.devices, num_hosts=num_hosts, assumed=assumed_hosts is not None)
    read = read_suite(
        find_suite(path),
        profile=options.profile,
        machine_kind=machine.kind,
        settings=options.settings,
        gpu_memory_bytes=machine.gpu_memory_bytes,
    )
    efforts = with_effort(read, attempts=options.attempts, steps=options.steps)
    suite = with_words(efforts, num_devices=there.count, max_gpus=options.max_gpus)
    in_profile = f" in its profile {suite.profile}" if suite.profile else ""
    required = parse_required(options.require)
    planned = functools.partial(
        expand,
        suite,
        load_models(),
        there,
        max_gpus=options.max_gpus,
        keep=parse_filter(options.keep) if options.keep is not None else lambda _point_id: True,
        required=required,
    )
    plan = planned()
    if not (plan.points or plan.skips or plan.left_out):
        every = expand(suite, load_models(), there)
        skipped_ids = [skip.id for skip in (*every.skips, *every.left_out)]
        ids = abridged([*(point.id for point in every.points), *skipped_ids], 3)
        raise UsageError(f"-k {options.keep!r} keeps no point of {path}{in_profile}, which has {ids}")
    here = fingerprint(run_fields(machine, hosts))
    _require_gpus(required, plan, machine, assumed=there.assumed)
    for name in sorted(required.backends):
        if not any(name in (*each.axes.get("backend", ()), each.settings.get("backend")) for each in suite.benchmarks):
            raise UsageError(f"--require backend={name}: no benchmark of {suite.name} has it{in_profile}")
    given = {benchmark.name for benchmark in suite.benchmarks if benchmark.gives_rates}
    rates = [point for point in plan.points if point.benchmark in given]
    if rates and earlier_rates is not None and root is not None:
        plan = planned(rates_run=earlier_rates(root, here, rates))
    if options.time_limit_s is not None and root is not None:
        known_s = earlier_attempts_s(root, suite.name, here, plan)
        plan = within(plan, known_s, options.time_limit_s)
    return suite, plan


def require_working_gpus(machine: Machine, profile: str | None) -> None:
    """Raises ``MachineError`` where a GPU or its driver fails, or the profile is of GPUs, and there are none."""
    means_gpus = profile is not None and is_of_gpus(profile)
    if machine.gpus or profile == "cpu" or (machine.gpu_remedy is None and not means_gpus):
        return
    why = f"--profile {profile} is for GPUs" if means_gpus else machine.gpu_remedy
    others = (
        f"plan for such: pybench plan SUITE --gpu {profile}" if means_gpus else "set CUDA_VISIBLE_DEVICES to nothing"
    )
    raise MachineError(
        f"no usable GPU: {machine.gpu_reason or 'none is here'}; {why}; to measure CPU cores instead, give "
        f"--profile cpu, or {others}"
    )


def _require_gpus(required: Required, plan: Plan, machine: Machine, *, assumed: bool) -> None:
    """Points of all GPUs, and of the cpu profile, fit every machine: without other points nothing is missing."""
    there = len(machine.gpus)
    if there >= required.num_gpus or any(skip.num_gpus > there for skip in plan.skips):
        return
    if assumed:
        raise UsageError(f"--require gpus={required.num_gpus}: {there} planned for; give --gpus {required.num_gpus}")
    reason = f" ({machine.gpu_reason})" if machine.gpu_reason else ""
    raise MachineError(
        f"--require gpus={required.num_gpus}: {there} here{reason}; see pybench doctor, or require what is here"
    )


def launch_requirements(suite: Suite, plan: Plan, machine: Machine) -> LaunchRequirements:
    """What running a plan takes; a point over several hosts also needs the hosts' network."""
    request = suite.container
    if any(point.settings.num_nodes > 1 for point in plan.points) and "network" not in request.relax:
        request = replace(request, relax=(*request.relax, "network"))
    return LaunchRequirements(
        backends=tuple(dict.fromkeys(image_backend(point.settings) for point in plan.points)),
        device=machine.devices.kind,
        request=request,
        gpu_uuids=tuple(gpu.uuid for gpu in machine.gpus)[: most_gpus(plan)],
    )


def most_gpus(plan: Plan) -> int:
    """Devices of one host that the largest of its points occupies."""
    return max((point.settings.num_gpus_per_node for point in plan.points), default=0)


def with_packages(
    plan: Plan, launcher: Launcher, required: Required = NOTHING_REQUIRED, benchmarks: Collection[str] = ()
) -> Plan:
    """``plan`` without the points whose packages are not installed: each is left out, with the remedy as its reason.

    Otherwise one missing package would be an error of every one of its attempts. What is required, by the command line
    or because its benchmark is among ``benchmarks``, is skipped instead, and so missing.
    """
    missing = functools.cache(launcher.missing)
    lacks = {point.id: lack for point in plan.points if (lack := _lacking(point.settings, missing)) is not None}
    absent = ((point, *lacks[point.id]) for point in plan.points if point.id in lacks)
    skips = {p.id: skipped(p, "package", reason, f"{name}{NOT_INSTALLED}") for p, name, reason in absent}
    return without(plan, skips, required, benchmarks)


def _lacking(settings: Settings, missing: Callable[[tuple[str, ...]], tuple[str, ...]]) -> tuple[str, str] | None:
    """The missing backend or extra, and a sentence with the remedy."""
    traits = BACKENDS[settings.backend]
    if absent := missing(traits.packages):
        reason = f"backend {settings.backend} needs {listed(absent)}, not found here: {traits.remedy}"
        return settings.backend, reason
    for extra in traits.extras:
        value = getattr(settings, extra.setting, None)
        is_needed = value is not None and extra.value in {None, value}
        if is_needed and (absent := missing(extra.packages)):
            return extra.name, f"{extra} needs {listed(absent)}, not found here: {extra.remedy or install(extra.name)}"
    return None


_MOST_NAMED = 3


class OutOfTimeError(Exception):
    """The run's time was over while an attempt ran; the worker is ended, and nothing of the attempt is kept."""


class TimeBudget:
    """``limit_s`` from now on for all attempts, ``None`` without end; ``end_s`` is in ``time.monotonic``."""

    def __init__(self, limit_s: float | None) -> None:
        self.end_s = math.inf if limit_s is None else time.monotonic() + limit_s
        self.is_limited = limit_s is not None
        self.limit = "" if limit_s is None else time_limit_text(limit_s)

    @property
    def end_ns(self) -> int | None:
        """The end in nanoseconds of CLOCK_MONOTONIC, ``None`` where there is none."""
        return int(self.end_s * 1e9) if self.is_limited else None

    @property
    def left_s(self) -> float:
        """Seconds until its end."""
        return self.end_s - time.monotonic()

    def left_out_note(self, attempts: Sequence[Attempt]) -> str:
        """A sentence that counts attempts which are not made, and names their points where they are few."""
        many = Counter(point.id for point, _ in attempts)
        verb = "is" if len(attempts) == 1 else "are"
        counted = f"{self.limit}: {plural(len(attempts), 'attempt')} {verb} not made"
        if len(many) > _MOST_NAMED:
            return f"{counted}, at {len(many)} points"
        return f"{counted}: {', '.join(f'{count} of {name}' for name, count in many.items())}"


_MOST_RUNS = 20
"""Folders of other runs that are looked at, the newest first."""


def earlier_attempts_s(
    root: Path, suite: str, machine: str, plan: Plan, current: Path | None = None, known: Collection[str] = ()
) -> dict[str, float]:
    """Seconds of an attempt by the digest of its point, as the latest run of ``suite`` below ``root`` measured it.

    ``machine`` is the fingerprint of these hosts. Run ``current`` does not count, points ``known`` are not looked for.
    """
    wanted = {point.digest for point in plan.points}.difference(known)
    seconds: dict[str, float] = {}
    for run, _ in earlier_runs(root, machine, most=_MOST_RUNS, suite=suite, current=current) if wanted else ():
        with suppress(RunFolderError, OSError):
            seconds = {**attempts_s(run.journal.records()), **seconds}
        if wanted <= seconds.keys():
            break
    return {digest: value for digest, value in seconds.items() if digest in wanted}


def kept_attempts_s(suite: str, plan: Plan, machine: Machine) -> dict[str, float]:
    """Seconds of an attempt by the digest of its point, by kept runs of the same kind and number of GPUs.

    Elsewhere a point has the time of a machine of its own number; ``node_check`` has those of node points in any suite.
    """
    by_count, here, seconds = load_durations().get(machine.kind, {}), str(len(machine.gpus)), dict[str, float]()
    has_models = any(not isinstance(point.settings, NodeSettings) for point in plan.points)
    for point in plan.points:
        name = "node_check" if has_models and isinstance(point.settings, NodeSettings) else suite
        known = {**by_count.get(str(point.num_gpus), {}), **by_count.get(here, {})}
        seconds |= {point.digest: known[name]} if name in known else {}
    return seconds


def attempts_s(records: Sequence[Record]) -> dict[str, float]:
    """Median seconds of a good attempt by the digest of its point."""
    durations_s = grouped((record.point_digest, record.duration_s) for record in records if record.ok)
    return {digest: median(values) for digest, values in durations_s.items()}
