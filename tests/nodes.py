"""A node of GPUs, usually eight, that measures itself, healthy but noisy, for drills that break one thing."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from pybench.core.measurements import Measurements
from pybench.core.node_checks import node_checks
from pybench.core.plan import point_id
from pybench.core.schedule import undecided
from pybench.files.run.folder import RunFolder
from pybench.model.machine import GpuInfo, Host, HostPart, Machine
from pybench.model.record import Energy, GpuConditions, GpuCounters, GpuEnergy, Health, PcieLink, RankReport, Record
from pybench.model.results import NodeCheck
from pybench.model.suite import Effort, Plan, Point
from pybench.model.wire import Header, Step, Work
from pybench.model.workloads.node import Burn, Collective, HostDeviceCopy, Matmul, MemoryBandwidth, PeerCopy
from pybench.model.workloads.settings import NodeSettings
from tests.builders import H200, MACHINE, MANIFEST

_SECOND = 1_000_000_000
_WORKLOADS: dict[str, tuple[type[NodeSettings], str, float, float]] = {
    # Settings, what a GPU reports, how much, and how far GPUs of one kind differ (standard deviation).
    "matmul": (Matmul, "matmul_flops_per_s", 660e12, 0.015),
    "memory": (MemoryBandwidth, "memory_bytes_per_s", 4.2e12, 0.003),
    "host_copy": (HostDeviceCopy, "host_copy_bytes_per_s", 53e9, 0.02),
    "burn": (Burn, "burn_flops_per_s", 640e12, 0.015),
    "peer_copy": (PeerCopy, "peer_copy_bytes_per_s", 370e9, 0.005),
}


class Node:
    """Records of one run. Every drill changes what it is about, by name."""

    def __init__(self, seed: int = 0, num_attempts: int = 2, num_gpus: int = 8, host: str = "") -> None:
        self.seed = seed
        self.host = host
        self.hosts: tuple[str, ...] = ()
        self.random = random.Random(seed)
        self.num_attempts = num_attempts
        self.gpus = range(num_gpus)
        self.plan = Plan(points=tuple(self._point(name) for name in _WORKLOADS), skips=())
        self.records = [self._record(point, n) for n in range(1, num_attempts + 1) for point in self.plan.points]

    def uuid(self, rank: int) -> str:
        """The UUID of one of its GPUs."""
        return f"GPU-{self.host}{rank}"

    @property
    def machine(self) -> Machine:
        """NVLink all to all."""
        topology = tuple(tuple("X" if a == b else "NV18" for b in self.gpus) for a in self.gpus)
        gpus = tuple(self._gpu(rank) for rank in self.gpus)
        names = tuple(gpu.name for gpu in gpus)
        return dataclasses.replace(MACHINE, gpus=gpus, gpu_names=names, gpu_count=len(gpus), topology=topology)

    def over_two_hosts(self, names: tuple[str, str]) -> None:
        """A run of one collective with a GPU of each of two hosts."""
        self.hosts = names
        settings = Collective(backend="torch", gpus=2, nodes=2)
        point = dataclasses.replace(self.plan.points[0], id="all_reduce", benchmark="all_reduce", settings=settings)
        self.plan = dataclasses.replace(self.plan, points=(point,))
        parts = tuple(HostPart(name=name, ranks=(rank, 1)) for rank, name in enumerate(names))
        self.records = [
            dataclasses.replace(record, point_id=point.id, point_digest=point.digest, hosts=parts)
            for record in self.records
            if record.point_id == self.records[0].point_id
        ]
        self.change_values(lambda *_: {"busbw_bytes_per_s": 46e9, "algbw_bytes_per_s": 46e9, "collective_s": 0.01})

    def rails_of_two_hosts(self, names: tuple[str, str], *busbw: tuple[float, float]) -> None:
        """A run of one all-reduce on each rail; both ends report a figure."""
        self.over_two_hosts(names)
        settings = Collective(backend="torch", gpus=2 * len(busbw), nodes=2, groups="rails")
        point = dataclasses.replace(self.plan.points[0], settings=settings)
        self.plan = dataclasses.replace(self.plan, points=(point,))
        parts = tuple(HostPart(name=name, ranks=(at * len(busbw), len(busbw))) for at, name in enumerate(names))
        self.records = [dataclasses.replace(record, point_digest=point.digest, hosts=parts) for record in self.records]
        by_rank = [end for ends in zip(*busbw, strict=True) for end in ends]
        self.change_values(
            lambda _, rank, __: {"busbw_bytes_per_s": by_rank[rank], "algbw_bytes_per_s": 1e9, "collective_s": 0.01}
        )

    def write(self, root: Path, when: datetime) -> Path:
        """As a run's folder."""
        folder = RunFolder.create(root, "node_check", when)
        suite = dataclasses.replace(MANIFEST.suite, name="node_check")
        machines = tuple(
            Host(name=name, machine=self.machine, boot_id="", time_offset_ns=0, pybench_version="", worker_sha256="")
            for name in self.hosts
        )
        folder.write_manifest(
            dataclasses.replace(
                MANIFEST, run_id=folder.run_id, created_utc=when.isoformat(), suite=suite, plan=self.plan,
                machine=self.machine, machines=machines,
            )
        )  # fmt: skip
        for record in self.records:
            folder.journal.append(record)
        return folder.path

    def checks(self) -> tuple[NodeCheck, ...]:
        return node_checks(Measurements.of(self.plan, self.records), self.machine)

    def decide(self, max_attempts: int) -> None:
        """As a run does: one more attempt at each point that is undecided, while its budget lasts."""
        while extra := undecided(self.plan.points, self.checks(), self.records):
            wanted = [(point, number) for point, number in extra if number <= max_attempts]
            if not wanted:
                return
            self.records += [self._record(point, number) for point, number in wanted]

    def found(self) -> list[tuple[str, str, str]]:
        """Name, subject and verdict of each check without a pass."""
        return [(check.name, check.subject, check.verdict) for check in self.checks() if check.verdict != "pass"]

    def change_values(self, change: Callable[[str, int, dict[str, float]], Mapping[str, float]]) -> None:
        """Rewrite each step's values: of (workload, rank, values)."""
        self.records = [self._changed(record, change) for record in self.records]

    def change_conditions(self, rank: int, **fields: Any) -> None:
        """One GPU's conditions in every attempt."""
        self.records = [
            dataclasses.replace(
                record,
                conditions=tuple(
                    dataclasses.replace(gpu, **fields) if gpu.uuid == self.uuid(rank) else gpu
                    for gpu in record.conditions
                ),
            )
            for record in self.records
        ]

    def change_counters(self, rank: int, **fields: Any) -> None:
        """One GPU's counters after the second attempt of all."""
        record = self.records[1]
        assert record.health is not None
        after = tuple(
            dataclasses.replace(gpu, **fields) if gpu.uuid == self.uuid(rank) else gpu for gpu in record.health.after
        )
        self.records[1] = dataclasses.replace(record, health=dataclasses.replace(record.health, after=after))

    def change_health(self, **fields: Any) -> None:
        """The health of every attempt."""
        self.records = [
            dataclasses.replace(r, health=None if r.health is None else dataclasses.replace(r.health, **fields))
            for r in self.records
        ]

    def _changed(self, record: Record, change: Callable[[str, int, dict[str, float]], Mapping[str, float]]) -> Record:
        workload = record.point_id.partition("[")[0]
        ranks = tuple(
            dataclasses.replace(
                report,
                steps=tuple(
                    dataclasses.replace(step, values=dict(change(workload, report.header.rank, step.values)))
                    for step in report.steps
                ),
            )
            for report in record.ranks
        )
        return dataclasses.replace(record, ranks=ranks)

    def _point(self, name: str) -> Point:
        kind = _WORKLOADS[name][0]
        return Point(
            id=point_id(name, {"gpus": len(self.gpus)}),
            benchmark=name,
            axes={"gpus": len(self.gpus)},
            settings=kind(workload=kind.workload, backend="torch", gpus=len(self.gpus)),
            effort=Effort(),
            architecture=None,
        )

    def _record(self, point: Point, attempt: int) -> Record:
        ranks = tuple(self._rank(point, rank) for rank in self.gpus)
        counters = tuple(
            GpuCounters(
                uuid=self.uuid(rank),
                ecc_corrected=3,
                ecc_uncorrected=0,
                rows_remapped_corrected=0,
                rows_remapped_uncorrected=1,
                remap_pending=False,
                remap_failed=False,
            )
            for rank in self.gpus
        )
        links = tuple(
            PcieLink(uuid=self.uuid(rank), generation=5, generation_max=5, width=16, width_max=16) for rank in self.gpus
        )
        return Record(
            point_id=point.id,
            point_digest=point.digest,
            attempt=attempt,
            started_utc="2026-11-22T00:00:00+00:00",
            duration_s=10.0,
            startup_s=5.0,
            ranks=ranks,
            failure=None,
            energy=Energy(start_ns=0, end_ns=_SECOND, gpus=tuple(self._energy(rank) for rank in self.gpus)),
            energy_reason=None,
            log="",
            trace=None,
            argv=(),
            conditions=tuple(self._conditions(rank) for rank in self.gpus),
            health=Health(before=counters, after=counters, links=links, xids=()),
        )

    def _rank(self, point: Point, rank: int) -> RankReport:
        header = Header(
            rank=rank,
            world_size=len(self.gpus),
            pid=1,
            boot_id="b",
            time_offset_ns=0,
            python="3.11",
            packages={},
            device="cuda",
            device_name="NVIDIA H200",
            device_uuid=self.uuid(rank),
        )
        run_to_run = self.random.gauss(1, 0.002)
        steps = tuple(
            Step(
                index=index,
                phase="measure",
                start_ns=index * _SECOND,
                end_ns=(index + 1) * _SECOND,
                work=Work(),
                values=self._values(point.benchmark, rank, run_to_run),
            )
            for index in range(5)
        )
        return RankReport(header=header, steps=steps, warmup_steps=3, steady=True)

    def _values(self, name: str, rank: int, run_to_run: float) -> dict[str, float]:
        _, metric, usual, spread = _WORKLOADS[name]
        own = random.Random(f"{self.seed} {name} {rank}").gauss(1, spread)
        value = usual * own * run_to_run * self.random.gauss(1, 0.002)
        extra: dict[str, float] = {}
        if name == "burn":
            extra = {"checksum": 4711.0, "mismatched_elements": 0.0}
        if name == "peer_copy":
            extra = {
                f"link_to_{other}_bytes_per_s": value * self.random.gauss(1, 0.003)
                for other in self.gpus
                if other != rank
            }
        return {metric: value, **extra}

    def _energy(self, rank: int) -> GpuEnergy:
        gain = random.Random(rank).gauss(1, 0.025)
        return GpuEnergy(uuid=self.uuid(rank), index=rank, method="counter", mean_power_w=690.0 * gain)

    def _conditions(self, rank: int) -> GpuConditions:
        return GpuConditions(
            uuid=self.uuid(rank),
            index=rank,
            sm_clock_hz=1.7e9 * self.random.gauss(1, 0.01),
            temperature_c=60 + rank % 2 * 5 + self.random.gauss(0, 1),
            clock_event_reasons=0x04,
        )

    def _gpu(self, rank: int) -> GpuInfo:
        return dataclasses.replace(
            H200, index=rank, uuid=self.uuid(rank), pci_bus_id=f"00000000:{0x19 + rank:02X}:00.0"
        )
