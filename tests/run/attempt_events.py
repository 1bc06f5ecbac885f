"""The events of a good attempt of two ranks, as an honest worker reports them, and the contract they keep."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pybench.model.wire import (
    Event,
    Metric,
    Phase,
    RequestTimes,
    Result,
    Span,
    Step,
    Work,
    WorkOrder,
    encode_event,
    events_file,
)
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.turn import Turn
from pybench.run.events.contract import Contract, Site, ordered_phases
from tests.builders import HEADER

CLOCK = ("boot", 0)
UUIDS = ("GPU-a", "GPU-b")
WORK = Work(prompt_tokens=6, output_tokens=10, samples=2)
ORDER = WorkOrder(
    point_id="p",
    settings=Generate(
        backend="torch", model="m", batch_size=2, prompt_tokens=3, output_tokens=5, tensor_parallel=2, seed=1
    ),
    architecture={},
    device="cuda",
    steps=2,
    max_warmup_steps=3,
)
MS = 1_000_000


TURN_ORDER = WorkOrder(
    point_id="p",
    settings=Turn(
        backend="torch", model="m", topology="full", tensor_parallel=2, batch_size=2, prompt_tokens=3, output_tokens=5,
        strategy="fsdp", turns=2,
    ),
    architecture={},
    device="cuda",
    steps=2,
    max_warmup_steps=3,
)  # fmt: skip
TURN_WORK = Work(prompt_tokens=12, output_tokens=20, samples=4)


def contract(order: WorkOrder = ORDER, num_processes: int = 2, gpu_uuids: tuple[str, ...] = UUIDS) -> Contract:
    """An attempt that began a second ago."""
    return Contract(
        order=order,
        num_processes=num_processes,
        sites=(Site(clock=CLOCK, gpu_uuids=gpu_uuids),),
        start_ns=time.monotonic_ns() - 1000 * MS,
    )


def good_events(rank: int, start_ns: int) -> list[Event]:
    """From the header to the result, within 200 ms of ``start_ns``; a warm-up step and two measured ones."""
    t = start_ns
    requests = tuple(
        RequestTimes(
            arrival_ns=t + 21 * MS,
            first_token_ns=t + 23 * MS,
            last_token_ns=t + 28 * MS,
            prompt_tokens=3,
            output_tokens=5,
        )
        for _ in range(2)
    )
    ends = tuple(t + n * MS for n in (42, 44, 46, 48, 50))
    return [
        replace(
            HEADER,
            rank=rank,
            world_size=2,
            boot_id="boot",
            packages={"torch": "2.13.0"},
            device="cuda",
            device_name="NVIDIA H200",
            device_uuid=UUIDS[rank],
        ),
        Phase(name="prepare", start_ns=t),
        Phase(name="warmup", start_ns=t + 5 * MS),
        Step(index=0, phase="warmup", start_ns=t + 6 * MS, end_ns=t + 16 * MS, work=WORK),
        Phase(name="measure", start_ns=t + 20 * MS),
        Step(index=1, phase="measure", start_ns=t + 20 * MS, end_ns=t + 30 * MS, work=WORK, requests=requests),
        Step(
            index=2,
            phase="measure",
            start_ns=t + 40 * MS,
            end_ns=t + 50 * MS,
            work=WORK,
            token_end_ns=ends,
            values={"num_preemptions": 0.0, "itl_s": 0.002},
        ),
        Phase(name="finish", start_ns=t + 51 * MS),
        Metric(name="peak_memory_bytes", value=1e9, unit="bytes"),
        Result(warmup_steps=1, steady=True),
    ]


def turn_events(rank: int, start_ns: int) -> list[Event]:
    """As :func:`good_events`, of turns: the phases of a step are equally long."""
    events: list[Event] = []
    for event in good_events(rank, start_ns):
        if not isinstance(event, Step):
            events.append(event)
            continue
        names = ordered_phases(TURN_ORDER.settings)
        each_ns = (event.end_ns - event.start_ns) // len(names)
        starts = [event.start_ns + place * each_ns for place in range(len(names))]
        spans = tuple(
            Span(name=name, start_ns=start, end_ns=start + each_ns, device_bytes=2**30, host_bytes=2**20)
            for name, start in zip(names, starts, strict=True)
        )
        values = {"handover_bytes": 1e9, "logprob_gap": 0.0, "staleness_turns": 0.0}
        events.append(replace(event, work=TURN_WORK, requests=(), token_end_ns=(), values=values, spans=spans))
    return events


def write_events(exchange: Path, rank: int, events: Iterable[Event]) -> None:
    """As the rank writes them."""
    (exchange / events_file(rank)).write_text("".join(encode_event(event) + "\n" for event in events))
