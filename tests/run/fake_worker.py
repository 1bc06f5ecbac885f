"""A worker that behaves, or misbehaves, as the environment tells it to. Speaks the real protocol.

``FAKE_BEHAVIOUR`` is a comma-separated list, one for each start of a point (the last one repeats). ``FAKE_POINT`` names
the one point of a session that it is for, by a part of its id; the others behave. ``FAKE_STRETCH`` is how much longer
than usual its steps are by the clock of its reports, a factor; ``FAKE_NOISE``, as ``SEED:SD``, scatters every attempt.
``FAKE_STEPS_MS`` gives lengths of steps as JSON: by backend, then by the degree of tensor parallelism.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

from pybench.model.wire import (
    ORDERS_FILE,
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
    go_file,
    monotonic_offset_ns,
)
from pybench.model.workloads.generate import Generate, drawn_lengths

exchange = Path(sys.argv[1])
options = dict(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
here = int(options.get("--ranks", "1"))
nodes, node = int(options.get("--nodes", "1")), int(options.get("--node-rank", "0"))
ranks = here * nodes
OWN = range(node * here, (node + 1) * here)
orders = [WorkOrder.from_json(line) for line in (exchange / ORDERS_FILE).read_text().splitlines()]
attempt = int(exchange.parent.name.rpartition(".")[2])
behaviours = os.environ["FAKE_BEHAVIOUR"].split(",")
asked = behaviours[min(attempt, len(behaviours)) - 1]
UUIDS = [uuid for uuid in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if uuid]
VALUES = {"matmul_flops_per_s": 1e12} if orders[0].settings.workload == "matmul" else {}
STEP_NS = int(os.environ.get("FAKE_STEP_MS", "10")) * 1_000_000
WARMUP_STEPS = 3


def say(rank: int, event: Event) -> None:
    """Append one event."""
    with (exchange / f"events.{rank}.jsonl").open("a") as stream:
        stream.write(encode_event(event) + "\n")


def header(rank: int, behaviour: str) -> Header:
    """Introduce a rank."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    offsets = Path("/proc/self/timens_offsets")
    return Header(
        rank=rank,
        world_size=ranks,
        pid=os.getpid(),
        boot_id="another" if behaviour == "other-clock" else boot_id,
        time_offset_ns=monotonic_offset_ns(offsets.read_text()) if offsets.exists() else 0,
        python="3.11.0",
        packages={},
        device="cuda" if UUIDS else "cpu",
        device_name=os.environ.get("FAKE_NAME", "fake"),
        device_uuid=UUIDS[rank - OWN[0]] if UUIDS else None,
        device_uuids=tuple(UUIDS) if here < len(UUIDS) else (),
    )


def work_of(order: WorkOrder) -> Work:
    """As ordered; nothing but values where it has some."""
    if VALUES:
        return Work()
    if isinstance(order.settings, Generate):
        requests = [*drawn_lengths(order.settings, 0)]
        return Work(
            prompt_tokens=sum(request.prompt_tokens for request in requests),
            output_tokens=sum(request.output_tokens for request in requests),
            samples=len(requests),
        )
    from pybench.run.events.contract import ordered_work  # noqa: PLC0415 - takes four times as long as all else here

    return ordered_work(order.settings, 0) or Work()


def listed_ns(order: WorkOrder) -> int | None:
    """Length of a step, where the environment lists it."""
    listed = json.loads(os.environ.get("FAKE_STEPS_MS", "{}")).get(order.settings.backend)
    return None if listed is None else int(listed[str(order.settings.num_gpus)] * 1e6)


def token_ends(order: WorkOrder, begin: int, end: int) -> tuple[int, ...]:
    """Decode rounds from the beginning to the end of a step."""
    count = getattr(order.settings, "output_tokens", 0)
    return () if VALUES else tuple(begin + (end - begin) * place // (count - 1) for place in range(count))


def warm_up(rank: int, order: WorkOrder) -> None:
    """Report steps as short as the clock can tell."""
    for index in range(WARMUP_STEPS):
        begin = time.monotonic_ns()
        end = max(time.monotonic_ns(), begin + 1)
        say(rank, Step(index=index, phase="warmup", start_ns=begin, end_ns=end, work=work_of(order), values=VALUES))


def measure(rank: int, order: WorkOrder, num_steps: int, started_ns: int, step_ns: int) -> None:
    """Report steps of the listed length, else such that speed is the number of ranks. They are over by then."""
    say(rank, Phase(name="measure", start_ns=started_ns))
    for index in range(num_steps):
        begin = started_ns + index * step_ns
        end = begin + step_ns // (ranks if listed_ns(order) is None else 1)
        say(
            rank,
            Step(
                index=WARMUP_STEPS + index,
                phase="measure",
                start_ns=begin,
                end_ns=end,
                work=work_of(order),
                token_end_ns=token_ends(order, begin, end),
                values=VALUES,
            ),
        )
    say(rank, Phase(name="finish", start_ns=time.monotonic_ns()))


def fill_disk(num_bytes_left: int = 0) -> None:
    """Leave little room on the small disk that this run's folder of runs is on."""
    disk = exchange.parents[4]
    usage = shutil.disk_usage(disk)
    assert usage.total < 2**30, "this is no small disk"
    with (disk / "filler").open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, usage.free - num_bytes_left)


def misbehave(behaviour: str, place: int) -> None:
    """What happens between the beginning of a point and its steps."""
    match behaviour:
        case "hang":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            (exchange / "hangs").touch()
            time.sleep(600)
        case "crash":
            print("Segmentation fault (imagined)")
            sys.exit(9)
        case "crash-warm" if place:
            sys.exit(9)
        case "signal":
            os.kill(os.getpid(), signal.SIGKILL)
        case "oom":
            run_out_of_memory()
        case "oom-warm" if place:
            run_out_of_memory()
        case "leak":
            token = os.environ["HF_TOKEN"]
            (exchange / "notes.txt").write_text(f"the token is {token}\n")
            print(os.environ)
            say(0, Failure(cause="exception", message=f"can't log in with {token}", detail=repr({"token": token})))
            sys.exit(1)
        case "silent":
            sys.exit(0)
        case "choke":
            fill_disk()
            sys.exit(9)


def run_out_of_memory() -> None:
    """Fail on the last rank; its peer sees no more than that."""
    say(ranks - 1, Failure(cause="out_of_memory", message="CUDA out of memory: tried to allocate 8 GiB"))
    if ranks > 1:
        say(0, Failure(cause="exception", message="peer closed the connection"))
    sys.exit(1)


def is_meant(order: WorkOrder) -> bool:
    """Whether the environment is about this point."""
    return os.environ.get("FAKE_POINT", "") in order.point_id


def random_stretch(order: WorkOrder) -> float:
    """The same for a seed, point and attempt."""
    seed, _, sd = os.environ.get("FAKE_NOISE", "0:0").partition(":")
    return math.exp(float(sd) * random.Random(f"{seed} {order.point_id} {attempt}").gauss(0, 1))


def meet() -> int:
    """Wait for the workers of the other hosts, as ranks do before each step; gives when all are there, on this clock.

    They agree on it by the wall clock, which hosts on one machine share in whatever time they live.
    """
    if nodes == 1:
        return time.monotonic_ns()
    address, _, port = options["--meet"].partition(" ")
    if node == 0:
        with socket.create_server((address, int(port))) as server:
            others = [server.accept()[0] for _ in range(nodes - 1)]
            wall_ns = time.time_ns()
            for other in others:
                other.sendall(str(wall_ns).encode())
                other.close()
    else:
        wall_ns = int(told(address, int(port)))
    return time.monotonic_ns() - (time.time_ns() - wall_ns)


def told(address: str, port: int) -> bytes:
    """What node 0 sends, once it listens."""
    while True:
        try:
            with socket.create_connection((address, port)) as other:
                return other.makefile("rb").read()
        except ConnectionRefusedError:
            time.sleep(0.01)


def work_on(order: WorkOrder, place: int) -> None:
    """One point from its header to its result."""
    behaviour = asked if is_meant(order) else "ok"
    print(f"fake worker: {behaviour}", flush=True)
    if behaviour == "garbage":
        (exchange / "events.0.jsonl").write_text("not json\n")
    for number in OWN:
        say(number, header(number, behaviour))
        say(number, Phase(name="warmup", start_ns=time.monotonic_ns()))
        warm_up(number, order)
    begun_ns = meet()
    misbehave(behaviour, place)
    while (wait := os.environ.get("FAKE_WAIT")) and not Path(wait).exists():  # until the host has seen that it runs
        time.sleep(0.01)
    stretch = random_stretch(order) * (float(os.environ.get("FAKE_STRETCH", "1")) if is_meant(order) else 1)
    step_ns = round((listed_ns(order) or STEP_NS) * stretch)
    if wait:  # steps that waited span the wait, and what sensors read in it
        step_ns = max(STEP_NS, 2 * (time.monotonic_ns() - begun_ns) // order.steps)
    time.sleep(max(0, begun_ns + order.steps * step_ns - time.monotonic_ns()) / 1e9)
    for number in OWN:
        measure(number, order, order.steps - (behaviour == "short"), begun_ns, step_ns)
        say(number, Metric(name="peak_memory_bytes", value=1024.0, unit="bytes"))
        say(number, Result(warmup_steps=WARMUP_STEPS, steady=True))
    match behaviour:
        case "fill":
            fill_disk()
        case "nearly_fill":
            fill_disk(num_bytes_left=2**20)
        case "leave":
            sys.exit(7)


for place, order in enumerate(orders):
    while place and not (exchange / go_file(place)).exists():
        time.sleep(0.01)
    work_on(order, place)
