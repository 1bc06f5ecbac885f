"""A worker that starts in milliseconds and measures a speed of exactly its number of ranks: EXCHANGE [--ranks N].

Between warm-up and measurement it waits until one of the files of ``QUICK_WAIT`` exists, where that is set.
"""
# ruff: noqa: PTH110, PTH123 - pathlib takes as long to import as all else here

import json
import os
import sys
import time

STEP_NS = 10_000_000
exchange = sys.argv[1]
ranks = int(sys.argv[3]) if len(sys.argv) > 3 else 1
awaited = os.environ.get("QUICK_WAIT")


def say(source: int, kind: str, **values: object) -> None:
    """Append one event."""
    with open(f"{exchange}/events.{source}.jsonl", "a") as stream:
        stream.write(json.dumps({kind: values}) + "\n")


def header(rank: int) -> None:
    """Introduce a rank, on this host's clocks."""
    with open("/proc/sys/kernel/random/boot_id") as stream:
        boot_id = stream.read().strip()
    with open("/proc/self/timens_offsets") as stream:
        seconds, nanoseconds = stream.readline().split()[1:]
    say(
        rank,
        "header",
        rank=rank,
        world_size=ranks,
        pid=os.getpid(),
        boot_id=boot_id,
        time_offset_ns=int(seconds) * 10**9 + int(nanoseconds),
        python="3.11.0",
        packages={},
        device="cpu",
        device_name="quick",
        protocol=2,
    )


def work_on(steps: int, work: dict[str, int]) -> None:
    """One point: warm-up of a step, then the measured ones, which lie in the past when they are reported."""
    for rank in range(ranks):
        header(rank)
        begin = time.monotonic_ns()
        say(rank, "phase", name="warmup", start_ns=begin)
        end = max(begin + 1, time.monotonic_ns())
        say(rank, "step", index=0, phase="warmup", start_ns=begin, end_ns=end, work=work)
    while awaited and not any(map(os.path.exists, awaited.split(os.pathsep))):
        time.sleep(0.005)
    begun = time.monotonic_ns()
    time.sleep(steps * STEP_NS / 1e9 + 0.001)
    for rank in range(ranks):
        say(rank, "phase", name="measure", start_ns=begun)
        for index in range(steps):
            begin = begun + index * STEP_NS
            times = {"start_ns": begin, "end_ns": begin + STEP_NS // ranks}
            say(rank, "step", index=1 + index, phase="measure", **times, work=work)
        say(rank, "phase", name="finish", start_ns=time.monotonic_ns())
        say(rank, "result", warmup_steps=1, steady=True)


with open(f"{exchange}/orders.jsonl") as orders:
    for place, order in enumerate(map(json.loads, orders)):
        while place and not os.path.exists(f"{exchange}/go.{place}"):
            time.sleep(0.005)
        settings = order["settings"]
        done = {"prompt_tokens": "prompt_tokens", "output_tokens": "output_tokens", "samples": "batch_size"}
        work_on(order["steps"], {name: settings[source] for name, source in done.items()})
