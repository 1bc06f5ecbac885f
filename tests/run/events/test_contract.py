"""A report that differs from the host's order is refused by its field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pybench.model.wire import Event, Failure, Header, Metric, Phase, Result, Span, Step, Work, WorkOrder
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.node import Matmul
from pybench.model.workloads.train import Train
from pybench.model.workloads.turn import Turn
from pybench.run.events.contract import Contract, check_spans, ordered_phases, ordered_work
from pybench.run.events.reader import EventReader, RankLog
from tests.run.attempt_events import MS, ORDER, UUIDS, WORK, contract, good_events, write_events

Change = Callable[[list[Event], Contract], list[Event]]


def judged(tmp_path: Path, kept: Contract, change: Change = lambda events, _: events) -> str | None:
    """Why two ranks' events are refused, if they are; ``change`` changes the second rank's."""
    for rank in range(2):
        events = good_events(rank, kept.start_ns)
        write_events(tmp_path, rank, change(events, kept) if rank else events)
    return read(tmp_path, kept)


def read(exchange: Path, kept: Contract) -> str | None:
    """How the events that both ranks wrote break the contract."""
    reader = EventReader(exchange, 2, 1)
    reader.begin(0, kept.check)
    try:
        reader.poll()
    except ValueError as error:
        return str(error)
    failure = kept.verify(reader.points[0])
    assert failure is None or failure.cause == "protocol"
    return failure.message if failure else None


def of(kind: type[Event], place: int = 0, **fields: Any) -> Change:
    """Change fields of the event number ``place`` of a kind."""

    def change(events: list[Event], _kept: Contract) -> list[Event]:
        chosen = [event for event in events if isinstance(event, kind)][place]
        return [replace(event, **fields) if event is chosen else event for event in events]

    return change


def moved(place: int, **shifts_ms: float) -> Change:
    """Move times of the step number ``place``."""

    def change(events: list[Event], kept: Contract) -> list[Event]:
        step: Any = [event for event in events if isinstance(event, Step)][place]
        times = {name: getattr(step, name) + round(ms * MS) for name, ms in shifts_ms.items()}
        return of(Step, place, **times)(events, kept)

    return change


def added(place: int, event: Event) -> Change:
    return lambda events, _kept: [*events[:place], event, *events[place:]]


def without(kind: type[Event], place: int = 0) -> Change:
    def change(events: list[Event], _kept: Contract) -> list[Event]:
        chosen = [event for event in events if isinstance(event, kind)][place]
        return [event for event in events if event is not chosen]

    return change


def test_an_honest_attempt_is_taken(tmp_path: Path) -> None:
    """Both ranks' events, as they are."""
    assert judged(tmp_path, contract()) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (of(Header, protocol=1), "header.protocol: found '1', expected '2'"),
        (of(Header, rank=0), "header.rank: found '0', expected '1'"),
        (of(Header, world_size=4), "header.world_size: found '4', expected '2'"),
        (of(Header, boot_id="other"), "header.boot_id: the rank runs on another clock than this host"),
        (of(Header, time_offset_ns=5), "header.boot_id: the rank runs on another clock than this host"),
        (of(Header, device="cpu"), "header.device: found 'cpu', expected 'cuda'"),
        (of(Header, replica=1), "header.replica: found '1', expected '0'"),
        (of(Header, python="3.12\nverdict: pass"), "header.packages: has a name or version that is none"),
        (of(Header, packages={"torch": "2 " * 40 + "verdict"}), "header.packages: has a name"),
        (of(Header, pid=-1), "header.pid: is no process id"),
        (of(Header, device_uuid="GPU-c"), "header.device_uuid: GPU-c is not one of the GPUs: GPU-a, GPU-b"),
        (of(Header, device_uuid=None), "header.device_uuid: is missing"),
        (of(Header, device_uuid="GPU-a"), "header.device_uuid: 2 ranks ran on one GPU, GPU-a"),
        (of(Header, device_uuids=("GPU-b", "GPU-a")), "header.device_uuid: 2 ranks ran on one GPU, GPU-a"),
        (without(Header), "header: is not the first event"),
        (lambda events, _: [events[0], *events], "header: comes twice"),
        (of(Phase, 0, start_ns=0), "phase.start_ns: lies before the attempt's start"),
        (of(Phase, 3, start_ns=2**62), "phase.start_ns: lies in the future"),
        (of(Phase, 1, name="measure"), "step.phase: found 'warmup', expected 'measure'"),
        (of(Phase, 3, name="warmup"), "phase.name: warmup comes late or twice"),
        (without(Phase, 1), "step.phase: found 'warmup', expected 'prepare'"),
        (without(Phase, 3), "phase.name: found 'measure', expected 'finish'"),
        (moved(1, start_ns=-10), "step.start_ns: lies before the end of an earlier event"),
        (moved(2, start_ns=-15), "step.start_ns: lies before the end of an earlier event"),
        (moved(2, end_ns=-10), "step.end_ns: lies before the step's start"),
        (moved(2, end_ns=-25), "step.end_ns: lies before the step's start"),
        (moved(2, end_ns=10_000), "step.end_ns: lies in the future"),
        (of(Step, 0, index=1), "step.index: found '1', expected '0'"),
        (of(Step, 2, index=1), "step.index: found '1', expected '2'"),
        (of(Step, 1, phase="warmup"), "step.phase: found 'warmup', expected 'measure'"),
        (of(Step, 1, work=replace(WORK, output_tokens=10_000)), "step.work: Work(prompt_tokens=6, output_tokens=10000"),
        (of(Step, 1, work=Work()), "step.work: "),
        (of(Step, 1, requests=()), None),
        (of(Step, 2, token_end_ns=(1, 2)), "step.token_end_ns: is out of order or outside the step"),
        (of(Step, 2, values={"itl_s": -1.0}), "step.values.itl_s: is negative"),
        (of(Step, 2, values={"itl": 1.0}), "step.values.itl: workload generate declares no value of this name"),
        (of(Step, 2, values={"energy_j": 1.0}), "step.values.energy_j: workload generate declares no value"),
        (of(Step, 2, values={"output_tokens_per_s": 9e9}), "step.values.output_tokens_per_s: workload generate"),
        (of(Step, 2, spans=(Span(name="train", start_ns=1, end_ns=2),)), "step.spans.name: train is no phase of the"),
        (of(Metric, unit="GB"), "metric.peak_memory_bytes.unit: found 'GB', expected 'bytes'"),
        (of(Metric, name="peak_memory"), "metric.peak_memory: workload generate declares no value of this name"),
        (of(Step, 2, values={"itl_s": 1e61}), "step.values.itl_s: is larger than any measurement"),
        (of(Step, 2, loss=-1e61), "step.loss: is larger than any measurement"),
        (of(Metric, value=1e61), "metric.peak_memory_bytes: is larger than any measurement"),
        (of(Metric, value=-1.0), "metric.peak_memory_bytes: is negative"),
        (added(9, Metric(name="peak_memory_bytes", value=1.0, unit="bytes")), "metric.peak_memory_bytes: comes twice"),
        (of(Result, warmup_steps=2), "result.warmup_steps: found '2', expected '1'"),
        (without(Result), "result: is missing"),
        (without(Step, 2), "result: the rank measured 1 steps, 2 were ordered"),
        (lambda events, _: [*events, events[-2]], "result: is not the rank's last event"),
        (added(1, Failure(cause="identity", message="x")), "error.cause: a worker reports no identity"),
        (added(1, Failure(cause="time_limit", message="x")), "error.cause: a worker reports no time_limit"),
    ],
)
def test_what_differs_is_named(tmp_path: Path, change: Change, reason: str | None) -> None:
    """Of the second rank: nothing is believed on its word."""
    found = judged(tmp_path, contract(), change)
    assert (found is None) == (reason is None)
    assert reason is None or (found is not None and reason in found)


@pytest.mark.parametrize(
    ("after_ms", "reason"),
    [(10, None), (1900, None), (2200, "measured 1 steps, 2 were ordered")],
)
def test_fewer_steps_where_the_runs_time_was_over(tmp_path: Path, after_ms: int, reason: str | None) -> None:
    """A second step of 10 ms, a second to report and one to hesitate end before the run does, or not."""
    kept = contract()
    end_ns = kept.start_ns + (30 + after_ms) * MS
    kept = replace(kept, order=replace(ORDER, end_ns=end_ns))
    for rank in (0, 1):
        write_events(tmp_path, rank, without(Step, 2)(good_events(rank, kept.start_ns), kept))
    found = read(tmp_path, kept)
    assert (found is None) == (reason is None)
    assert reason is None or (found is not None and reason in found)


def test_too_many_steps(tmp_path: Path) -> None:
    """More warm-up than its ceiling, or more measured steps than ordered, end the reading: memory stays bounded."""
    kept = contract()

    def more(phase: str, count: int) -> Change:
        def change(events: list[Event], _kept: Contract) -> list[Event]:
            begin = kept.start_ns + 6 * MS
            steps = [
                Step(index=n, phase=phase, start_ns=begin + n * 10, end_ns=begin + n * 10 + 5, work=WORK)  # type: ignore[arg-type]
                for n in range(count)
            ]
            phases = [event for event in events if isinstance(event, Phase) and event.name == phase]
            return [events[0], replace(phases[0], start_ns=begin), *steps]

        return change

    assert "there are more than 3 steps in phase warmup" in str(judged(tmp_path, kept, more("warmup", 4)))
    assert "there are more than 2 steps in phase measure" in str(judged(tmp_path, kept, more("measure", 3)))


def test_ranks_at_different_steps(tmp_path: Path) -> None:
    """They wait for each other at both ends of a step: a rank whose steps lie elsewhere was not part of it."""

    def apart(events: list[Event], kept: Contract) -> list[Event]:
        bare = of(Step, 2, token_end_ns=())(events, kept)
        return moved(2, start_ns=10.2, end_ns=0.9)(bare, kept)

    assert "ranks were not at step 2 at the same time" in str(judged(tmp_path, contract(), apart))


def test_a_point_on_a_cpu_has_no_gpu(tmp_path: Path) -> None:
    """A GPU that takes part in a CPU point is no CPU."""
    kept = contract(order=replace(ORDER, device="cpu"), gpu_uuids=())
    change = of(Header, device="cpu")
    for rank in range(2):
        write_events(tmp_path, rank, change(good_events(rank, kept.start_ns), kept))
    reader = EventReader(tmp_path, 2, 1)
    reader.begin(0, kept.check)
    with pytest.raises(ValueError, match=r"rank 0: header\.device_uuid: GPU-a is not one of the GPUs: none"):
        reader.poll()


@pytest.mark.parametrize(
    ("settings", "work", "ok"),
    [
        (Matmul(backend="torch", gpus=2), Work(), True),
        (Matmul(backend="torch", gpus=2), Work(output_tokens=100), False),
        (Train(backend="torch", model="m", global_batch_size=8, sequence_tokens=4), Work(samples=8), True),
        (Train(backend="torch", model="m", global_batch_size=8, sequence_tokens=4), Work(samples=8000), False),
        (
            Train(backend="torch", model="m", batch_size_per_gpu="auto", sequence_tokens=4, data_parallel=2),
            Work(samples=24),
            True,
        ),
        (
            Train(backend="torch", model="m", batch_size_per_gpu="auto", sequence_tokens=4, data_parallel=2),
            Work(samples=23),
            False,
        ),
        # Lengths are drawn, but from the order's own seed.
        (
            Generate(
                backend="vllm",
                model="m",
                batch_size=4,
                prompt_tokens=100,
                output_tokens=10,
                length_spread_fraction=0.5,
                data_parallel=2,
            ),
            None,
            True,
        ),
    ],
    ids=str,
)
def test_the_work_is_the_orders(settings: Any, work: Work | None, ok: bool) -> None:
    """For every workload: the host computes tokens and samples and compares the worker's."""
    order = WorkOrder(point_id="p", settings=settings, architecture={}, device="cuda", steps=1, max_warmup_steps=1)
    kept = contract(order=order)
    replicas = (0, 1) if settings.workload == "generate" else (0, 0)
    logs = []
    for rank, replica in enumerate(replicas):
        log = RankLog()
        t = kept.start_ns
        done = work or ordered_work(settings, replica)
        assert done is not None
        header: Any = good_events(rank, t)[0]
        events: list[Event] = [
            replace(header, replica=replica),
            Phase(name="measure", start_ns=t),
            Step(index=0, phase="measure", start_ns=t, end_ns=t + MS, work=done),
            Phase(name="finish", start_ns=t + MS),
            *([Metric(name="batch_size_per_gpu", value=12, unit="samples")] if settings.workload == "train" else []),
            Result(warmup_steps=0, steady=False),
        ]
        for event in events:
            refusal = refused(kept, rank, log, event)
            if refusal is not None:
                assert not ok
                assert "step.work" in refusal
                return
            log.add(event)
        logs.append(log)
    failure = kept.verify(logs)
    assert (failure is None) == ok
    assert failure is None or "step.work" in failure.message


@pytest.mark.parametrize(
    ("backend", "work", "failed", "ok"),
    [
        ("server", Work(prompt_tokens=6, output_tokens=10, samples=2), 1, True),
        ("server", Work(prompt_tokens=6, output_tokens=10, samples=2), 0, False),
        ("server", Work(prompt_tokens=6, output_tokens=10, samples=2), 2, False),
        ("server", Work(prompt_tokens=9, output_tokens=10, samples=2), 1, False),
        ("server", Work(), 3, False),
        ("vllm", Work(prompt_tokens=6, output_tokens=10, samples=2), 1, False),
    ],
)
def test_a_servers_failed_requests_are_left_out(backend: Any, work: Work, failed: int, ok: bool) -> None:
    """Completed and failed requests add up to the batch of three."""
    settings = Generate(backend=backend, model="m", batch_size=3, prompt_tokens=3, output_tokens=5)
    order = WorkOrder(point_id="p", settings=settings, architecture={}, device="cuda", steps=1, max_warmup_steps=1)
    kept, log = contract(order=order, num_processes=1), RankLog()
    t = kept.start_ns
    header: Any = good_events(0, t)[0]
    for event in (replace(header, world_size=1), Phase(name="measure", start_ns=t)):
        log.add(event)
    values = {"num_failed_requests": float(failed)}
    step = Step(index=0, phase="measure", start_ns=t, end_ns=t + MS, work=work, values=values)
    refusal = refused(kept, 0, log, step)
    assert refusal is None if ok else refusal is not None and "step.work" in refusal


@pytest.mark.parametrize("name", ["stage_busy_s", "input_wait_s"])
def test_no_part_of_a_step_is_longer_than_it(name: str) -> None:
    """A step of 1 ms; a GPU's own clock may run 1 % faster than the host's."""
    settings = Train(backend="torch", model="m", global_batch_size=8, sequence_tokens=4)
    order = WorkOrder(point_id="p", settings=settings, architecture={}, device="cuda", steps=1, max_warmup_steps=1)
    kept, log = contract(order=order), RankLog()
    t = kept.start_ns
    for event in (good_events(0, t)[0], Phase(name="measure", start_ns=t)):
        log.add(event)
    step = Step(index=0, phase="measure", start_ns=t, end_ns=t + MS, work=Work(samples=8), values={name: 1.005e-3})
    assert refused(kept, 0, log, step) is None
    longer = refused(kept, 0, log, replace(step, values={name: 1.02e-3}))
    assert longer is not None
    assert f"step.values.{name}: is longer than its step" in longer


def refused(kept: Contract, rank: int, log: RankLog, event: Event) -> str | None:
    """Why the contract refuses an event, if it does."""
    try:
        kept.check(rank, log, event, kept.start_ns + 1000 * MS)
    except ValueError as error:
        return str(error)
    return None


def test_copies_draw_what_the_order_says() -> None:
    """Requests of the two copies of a spread of lengths: worked out by hand from their count and limits."""
    fixed = Generate(backend="vllm", model="m", batch_size=6, prompt_tokens=10, output_tokens=4, data_parallel=2)
    assert ordered_work(fixed, 0) == ordered_work(fixed, 1) == Work(prompt_tokens=30, output_tokens=12, samples=3)
    spread = replace(fixed, length_spread_fraction=0.5)
    work = ordered_work(spread, 0)
    assert work is not None
    assert work.samples == 3
    assert 15 <= work.prompt_tokens <= 45
    assert work != ordered_work(replace(spread, seed=1), 0)


@pytest.mark.parametrize("uuids", [UUIDS, UUIDS[::-1]])
def test_gpus_may_come_in_any_order(tmp_path: Path, uuids: tuple[str, str]) -> None:
    """The host's sampler knows them by the same names."""
    assert judged(tmp_path, contract(gpu_uuids=uuids)) is None


TURN = WorkOrder(
    point_id="p",
    settings=Turn(backend="torch", model="m", topology="shared", batch_size=2, prompt_tokens=3, output_tokens=5),
    architecture={},
    device="cuda",
    steps=2,
    max_warmup_steps=3,
)


def _span(name: str, start_ns: int, end_ns: int, **more: int) -> Span:
    return Span(name=name, start_ns=start_ns, end_ns=end_ns, **more)


def _spans(*changed: Span, left_out: int = 0) -> tuple[Span, ...]:
    """The phases of a turn, 10 ns each from 10 ns on, the first ones replaced."""
    names = ordered_phases(TURN.settings)[: len(ordered_phases(TURN.settings)) - left_out]
    whole = tuple(_span(name, 10 + 10 * place, 20 + 10 * place) for place, name in enumerate(names))
    return (*changed, *whole[len(changed) :])


@pytest.mark.parametrize(
    ("spans", "reason"),
    [
        (_spans(), None),
        (_spans(_span("generate", 10, 20, device_bytes=1)), None),
        (_spans(_span("generate", 10, 21)), "out of order or outside the step"),
        (_spans(_span("generate", 9, 20)), "out of order or outside the step"),
        (_spans(_span("generate", 10, 10)), "has a part without length"),
        (_spans(_span("rest", 10, 20)), "rest is no phase of the order"),
        (_spans(_span("engine_sleep", 10, 20)), "are not the order's phases"),
        (_spans(left_out=1), "are not the order's phases"),
        ((), "are not the order's phases"),
        (_spans(_span("generate", 10, 20, host_bytes=-1)), "has negative bytes"),
    ],
)
def test_parts_of_a_step_are_phases_inside_it(spans: tuple[Span, ...], reason: str | None) -> None:
    """One after another, all that the order has."""
    step = Step(index=0, phase="measure", start_ns=10, end_ns=150, work=Work(), spans=spans)
    phases = ordered_phases(TURN.settings)
    if reason is None:
        check_spans(0, step, phases)
    else:
        with pytest.raises(ValueError, match=reason):
            check_spans(0, step, phases)
