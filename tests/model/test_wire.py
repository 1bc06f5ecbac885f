"""Messages between host and worker survive a round trip, or are refused."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from pybench.model.wire import (
    PROTOCOL_VERSION,
    Event,
    Failure,
    Header,
    Metric,
    Phase,
    Result,
    Step,
    Work,
    WorkOrder,
    encode_event,
)
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.train import Train
from pybench.run.events.reader import decode_event

STEP = Step(
    index=3,
    phase="measure",
    start_ns=2**62,
    end_ns=2**62 + 1_500_000_001,
    work=Work(output_tokens=7),
    token_end_ns=(2**62 + 1, 2**62 + 2),
    loss=0.25,
)
EVENTS: list[Event] = [
    Header(
        rank=1,
        world_size=2,
        pid=3,
        boot_id="b",
        time_offset_ns=-5,
        python="3.10.0",
        packages={"torch": "2.11.0"},
        device="cuda",
        device_name="NVIDIA H200",
        device_uuid="GPU-a",
    ),
    Phase(name="warmup", start_ns=2**62),
    STEP,
    Metric(name="peak_memory_bytes", value=1.0, unit="B"),
    Result(warmup_steps=3, steady=False),
    Failure(cause="out_of_memory", message="81 GiB", detail="line\nümlaut"),
]
GENERATE = Generate(backend="torch", model="m", batch_size=1, prompt_tokens=2, output_tokens=3, tensor_parallel=2)
TRAIN = Train(backend="torch", model="m", global_batch_size=8, sequence_tokens=4, data_parallel=2)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_comes_back_as_it_went(event: Event) -> None:
    """On one line; nanoseconds stay exact integers, tuples stay tuples."""
    line = encode_event(event)
    assert "\n" not in line
    assert decode_event(line) == event


GOOD_STEP = encode_event(STEP)


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("", "Invalid JSON"),
        ("{", "Invalid JSON"),
        ("7", "an object"),
        ("null", "an object"),
        ("[]", "an object"),
        ("{}", "0 events"),
        ('{"step": null}', "0 events"),
        ('{"song": {}}', "song: "),
        ("[" * 100_000, "Invalid JSON"),
        ('{"phase": {"name": "warmup"}}', "phase.start_ns: "),
        ('{"phase": {"name": "song", "start_ns": 1}}', "phase.name: "),
        ('{"phase": {"name": "warmup", "start_ns": 1, "more": 2}}', "phase.more: "),
        ('{"phase": {"name": "warmup", "start_ns": 1}, "result": {"warmup_steps": 1, "steady": true}}', "2 events"),
        ('{"step": {"work": 1}}', "step.index: "),
        (GOOD_STEP.replace('"index": 3', '"index": "3"'), "step.index: "),
        (GOOD_STEP.replace('"index": 3', '"index": true'), "step.index: "),
        (GOOD_STEP.replace('"index": 3', '"index": 3.0'), "step.index: "),
        (GOOD_STEP.replace('"index": 3', '"index": 3' + 30 * "0"), "index: beyond 64 bits"),
        (GOOD_STEP.replace('"index": 3', '"index": 3' + 5_000 * "0"), "Invalid JSON"),
        (GOOD_STEP.replace('"output_tokens": 7', '"output_tokens": 1e30'), "step.work.output_tokens: "),
        (GOOD_STEP.replace('"output_tokens": 7', '"output_tokens": 7, "joules": 1'), "step.work.joules: "),
        (GOOD_STEP.replace("0.25", "NaN"), "step.loss: "),
        (GOOD_STEP.replace("0.25", "-Infinity"), "step.loss: "),
        (GOOD_STEP.replace("0.25", "1e999"), "step.loss: "),
        (GOOD_STEP.replace("0.25", "1" + 400 * "0"), "step.loss: "),
        (GOOD_STEP.replace("0.25", '"0.25"'), "step.loss: "),
        (GOOD_STEP.replace('"values": {}', '"values": {"a": null}'), "step.values.a: "),
        (GOOD_STEP.replace('"values": {}', '"values": {"\\ud800": 1}'), "Invalid JSON"),
    ],
)
def test_another_line_is_refused(line: str, field: str) -> None:
    """Types, keys and finite numbers; with the field's name and what the line was."""
    with pytest.raises(ValueError, match=f"not an event of protocol {PROTOCOL_VERSION}: ") as refused:
        decode_event(line)
    assert field in str(refused.value)


def test_a_long_line_is_told_in_part() -> None:
    """A worker that prints a tensor into its stream must not fill the journal."""
    with pytest.raises(ValueError, match="not an event") as refused:
        decode_event("x" * 10_000)
    assert len(str(refused.value)) < 400


def test_a_line_is_refused_at_the_first_fault_of_a_list() -> None:
    """With one an element, a line of 16 MiB took 11 GB."""
    with pytest.raises(ValueError, match="not an event") as refused:
        decode_event('{"step":{"requests":[' + "1," * 10_000 + "1]}}")
    assert isinstance(refused.value.__cause__, ValidationError)
    assert refused.value.__cause__.error_count() < 50


def test_a_long_failure_is_kept_in_part() -> None:
    """The beginning of its message, and the end of its traceback."""
    kept = decode_event(encode_event(Failure(cause="exception", message="a" * 10_000, detail="b" * 100_000 + "end")))
    assert isinstance(kept, Failure)
    assert (kept.message, len(kept.detail), kept.detail[-4:]) == ("a" * 2_000, 2**16, "bend")


def test_a_steps_length() -> None:
    """In seconds, from nanoseconds that no float holds exactly."""
    assert STEP.duration_s == 1.500000001


@pytest.mark.parametrize("settings", [GENERATE, TRAIN], ids=["generate", "train"])
def test_a_work_order_comes_back_as_it_went(settings: Generate | Train) -> None:
    """With its workload's own settings."""
    order = WorkOrder(
        point_id="p[seed=1]",
        settings=settings,
        architecture={"model_type": "llama", "hidden_size": 64},
        device="cpu",
        steps=5,
        max_warmup_steps=20,
    )
    assert WorkOrder.from_json(order.to_json()) == order


def test_a_work_order_of_another_protocol_is_refused() -> None:
    """Both versions are told."""
    order = WorkOrder(point_id="p", settings=TRAIN, architecture={}, device="cpu", steps=1, max_warmup_steps=1)
    text = json.dumps({**json.loads(order.to_json()), "protocol": 99})
    with pytest.raises(ValueError, match=f"work order speaks protocol 99, this worker {PROTOCOL_VERSION}"):
        WorkOrder.from_json(text)
