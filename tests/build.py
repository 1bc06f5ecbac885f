"""Builders of points, records and machines, with values that are easy to compute by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pybench.core.plan import point_id
from pybench.model.machine import Machine
from pybench.model.record import Energy, GpuEnergy, RankReport, Record
from pybench.model.suite import Effort, Point
from pybench.model.wire import Failure, FailureCause, Header, Metric, Step, Work
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.train import Train
from tests.builders import MACHINE, RECORD

_SECOND = 1_000_000_000
_ARCHITECTURE = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}


class Build:
    """Every builder takes only what a test is about."""

    architecture = _ARCHITECTURE

    def machine(self, kind: str = "h200", fabric: Any = "nvlink") -> Machine:
        """A machine of some kind; nothing else of it matters here."""
        return replace(MACHINE, kind=kind, fabric=fabric, gpus=(), gpu_count=0, gpu_names=(), driver=None, packages={})

    def generate(self, degree: int = 1, benchmark: str = "decode", **settings: Any) -> Point:
        """A generation point along tensor_parallel, 40 output tokens a step."""
        axes = {"tensor_parallel": degree}
        values = {"backend": "torch", "model": "m", "batch_size": 4, "prompt_tokens": 30, "output_tokens": 10}
        return Point(
            id=point_id(benchmark, axes),
            benchmark=benchmark,
            axes=dict(axes),
            settings=Generate(**{**values, **settings, **axes}),
            effort=Effort(),
            architecture=_ARCHITECTURE,
        )

    def train(self, degree: int = 1) -> Point:
        """A training point along data_parallel, 100 tokens a sample."""
        axes = {"data_parallel": degree}
        return Point(
            id=point_id("fit", axes),
            benchmark="fit",
            axes=dict(axes),
            settings=Train(backend="torch", model="m", batch_size_per_gpu=2, sequence_tokens=100, data_parallel=degree),
            effort=Effort(),
            architecture=_ARCHITECTURE,
        )

    def steps(self, seconds: Sequence[float], work: Work, start_s: float = 0.0, rounds: int = 0) -> tuple[Step, ...]:
        """Steps of these lengths, back to back, each with evenly spaced decode rounds."""
        found, now = [], int(start_s * _SECOND)
        for index, length in enumerate(seconds):
            end = now + int(length * _SECOND)
            ends = tuple(now + (end - now) * (n + 1) // rounds for n in range(rounds))
            found.append(Step(index=index, phase="measure", start_ns=now, end_ns=end, work=work, token_end_ns=ends))
            now = end
        return tuple(found)

    def rank(
        self,
        steps: tuple[Step, ...],
        rank: int = 0,
        *,
        steady: bool = True,
        memory: float = 5.0,
        replica: int = 0,
        device_name: str = "d",
        told: dict[str, float] | None = None,
    ) -> RankReport:
        """The report of one rank; ``told`` are more metrics of its own."""
        header = Header(
            rank=rank,
            world_size=1,
            pid=1,
            boot_id="b",
            time_offset_ns=0,
            python="3.11",
            packages={"torch": "2.11.0"},
            device="cuda",
            device_name=device_name,
            replica=replica,
        )
        metrics = (
            Metric(name="peak_memory_bytes", value=memory, unit="bytes"),
            Metric(name="cuda_graph", value=1.0, unit=""),
            *(Metric(name=name, value=value, unit="") for name, value in (told or {}).items()),
        )
        return RankReport(header=header, steps=steps, metrics=metrics, warmup_steps=2, steady=steady)

    def energy(self, joules: Sequence[float | None], seconds: float, flags: tuple[str, ...] = ()) -> Energy:
        """Joules of each GPU over so many seconds."""
        gpus = tuple(
            GpuEnergy(
                uuid=f"GPU-{index}",
                index=index,
                energy_j=value,
                energy_low_j=None,
                energy_high_j=None,
                mean_power_w=None if value is None else value / seconds,
                max_power_w=None,
                method="counter",
                flags=flags,
            )
            for index, value in enumerate(joules)
        )
        return Energy(start_ns=0, end_ns=int(seconds * _SECOND), gpus=gpus)

    def record(
        self,
        point: Point,
        ranks: tuple[RankReport, ...],
        attempt: int = 1,
        *,
        energy: Energy | None = None,
        failure: Failure | None = None,
        energy_reason: str | None = None,
        startup_s: float | None = 3.0,
    ) -> Record:
        """One attempt."""
        return replace(
            RECORD,
            point_id=point.id,
            point_digest=point.digest,
            attempt=attempt,
            startup_s=startup_s,
            ranks=ranks,
            failure=failure,
            energy=energy,
            energy_reason=energy_reason,
        )

    def measured(self, point: Point, seconds: Sequence[Sequence[float]], **more: Any) -> list[Record]:
        """One good record for each attempt's step lengths; a generation step prefills 120 and decodes 40 tokens."""
        work = Work(prompt_tokens=120, output_tokens=40, samples=4)
        return [
            self.record(point, (self.rank(self.steps(lengths, work, rounds=10)),), number, **more)
            for number, lengths in enumerate(seconds, 1)
        ]

    def on_card(self, card: str, records: Sequence[Record]) -> list[Record]:
        """These attempts as another card's."""
        ranks = [[replace(r, header=replace(r.header, device_name=card)) for r in record.ranks] for record in records]
        return [replace(record, ranks=tuple(own)) for record, own in zip(records, ranks, strict=True)]

    def failed(self, point: Point, attempt: int = 1, cause: FailureCause = "out_of_memory") -> Record:
        """An attempt that failed, unless said otherwise as it ran out of memory."""
        return self.record(point, (), attempt, failure=Failure(cause=cause, message="81 GiB asked"))
