"""Faults in earnest, from ranks over gloo to a named verdict: a slow rank, a wrong result, a slow link."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from pybench.core.measurements import Measurements
from pybench.core.node_checks import node_checks
from pybench.machine.environment import snapshot
from pybench.model.record import RankReport, Record
from pybench.model.results import NodeCheck
from pybench.model.suite import Effort, Plan, Point
from pybench.model.wire import ORDERS_FILE, Event, Header, WorkOrder, go_file
from pybench.model.workloads.node import Burn, Matmul, PeerCopy, TrainingStep
from pybench.run.events.reader import decode_event
from tests.build import Build
from tests.worker.conftest import points_of, steps_of

_SLOWED = "import time; time.sleep(0.5)"


def _point(settings: Matmul | Burn | PeerCopy | TrainingStep) -> Point:
    return Point(
        id=settings.workload,
        benchmark=settings.workload,
        axes={},
        settings=settings,
        effort=Effort(steps=4, max_warmup_steps=1),
        architecture=None,
    )


_MATMUL = _point(Matmul(backend="torch", gpus=2, precision="float32", m=256, n=256, k=256, products=20))
_COPIES = _point(PeerCopy(backend="torch", gpus=3, peer_bytes=2**20, peer_copies=2))


def _burn(num_ranks: int) -> Point:
    return _point(Burn(backend="torch", gpus=num_ranks, burn_precision="float32", side=64, burn_s=0.1))


def _training(num_ranks: int) -> Point:
    small: dict[str, Any] = dict.fromkeys(("layers", "heads", "sequences"), 1)
    return _point(
        TrainingStep(backend="torch", gpus=num_ranks, step_precision="float32", tokens=16, updates=2, **small)
    )


def _events(exchange: Path, rank: int) -> list[Event]:
    path = exchange / f"events.{rank}.jsonl"
    text = path.read_text() if path.exists() else ""
    return [decode_event(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def _break(stage: Path, module: str, before: str, fault: str) -> None:
    """Put a fault into a staged module, as a statement before the one line that begins so."""
    path = stage / "pybench/worker/backends/torch/node" / f"{module}.py"
    lines = path.read_text().splitlines()
    (place,) = (number for number, line in enumerate(lines) if line.strip().startswith(before))
    indent = lines[place][: -len(lines[place].lstrip())]
    path.write_text("\n".join([*lines[:place], indent + fault, *lines[place:]]) + "\n")


def _attempts(python: Path, stage: Path, point: Point, number: int) -> list[Record]:
    """All by one worker: the point is in its session as often."""
    num_ranks = point.num_gpus
    exchange = stage.parent / "exchange"
    exchange.mkdir()
    order = WorkOrder(
        point_id=point.id,
        settings=point.settings,
        architecture=None,
        device="cpu",
        steps=point.effort.steps,
        max_warmup_steps=point.effort.max_warmup_steps,
    ).to_json()
    (exchange / ORDERS_FILE).write_text("\n".join([order] * number))
    for later in range(1, number):
        (exchange / go_file(later)).touch()
    worker = [str(stage / "pybench/worker/__main__.py"), str(exchange), "--ranks", str(num_ranks)]
    done = subprocess.run([str(python), "-I", "-B", *worker], capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    attempts = zip(*(points_of(_events(exchange, rank)) for rank in range(num_ranks)), strict=True)
    return [
        Build().record(point, tuple(_report(events) for events in ranks), number)
        for number, ranks in enumerate(attempts, 1)
    ]


def _report(events: list[Event]) -> RankReport:
    (header,) = (event for event in events if isinstance(event, Header))
    return RankReport(header=header, steps=tuple(steps_of(events)))


@pytest.fixture
def drill(
    warm_python: Path, stage: Path, no_driver: None, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Sequence[NodeCheck]]:
    """Attempts at a point on this machine's CPU, and what is found."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def run(point: Point, *, attempts: int = 2) -> Sequence[NodeCheck]:
        records = _attempts(warm_python, stage, point, attempts)
        assert len(records) == attempts
        return node_checks(Measurements.of(Plan(points=(point,), skips=()), records), snapshot())

    return run


@pytest.mark.timeout(600)
def test_a_delayed_rank_is_named(stage: Path, drill: Callable[..., Sequence[NodeCheck]]) -> None:
    """By many times its work, which is far from a busy machine's noise; two attempts would not always show it."""
    _break(stage, "compute", "for _ in range(self._settings.products)", f"if self.ranks.rank == 1: {_SLOWED}")
    (check,) = drill(_MATMUL, attempts=4)
    assert (check.name, check.subject, check.verdict) == ("slowest", "rank 1", "fail"), check.reason
    assert check.value is not None
    assert check.value < -0.5


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("num_ranks", "subject"), [(3, "rank 1"), (2, "rank 0, rank 1")])
def test_a_wrong_result_is_named(
    stage: Path, drill: Callable[..., Sequence[NodeCheck]], num_ranks: int, subject: str
) -> None:
    """One operand's bit flipped in one rank's memory: the others agree against it; of two, nobody knows which."""
    _break(stage, "compute", "self._right = ", "if ranks.rank == 1: self._left.view(torch.int32)[0, 0] ^= 1 << 20")
    wrong = [check for check in drill(_burn(num_ranks)) if check.name == "checksum"]
    assert [(check.subject, check.verdict) for check in wrong] == [(subject, "fail")]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("num_ranks", "subject"), [(3, "rank 1"), (2, "rank 0, rank 1")])
def test_a_wrong_gradient_is_named(
    stage: Path, drill: Callable[..., Sequence[NodeCheck]], num_ranks: int, subject: str
) -> None:
    """One bit of one gradient flipped in one rank's memory, in every training step."""
    _break(stage, "compute", "mean.lerp_", "if self.ranks.rank == 1: gradient.view(torch.int32)[0, 0] ^= 1 << 20")
    wrong = [check for check in drill(_training(num_ranks)) if check.name == "checksum"]
    assert [(check.subject, check.verdict) for check in wrong] == [(subject, "fail")]


@pytest.mark.timeout(600)
def test_a_result_that_does_not_repeat_is_named(stage: Path, drill: Callable[..., Sequence[NodeCheck]]) -> None:
    """One bit of one rank's results flipped after the first: of two ranks, that one."""
    _break(stage, "compute", "self._differing +=", "if self.ranks.rank == 1: self._out.view(torch.int32)[0, 0] ^= 1")
    wrong = [check for check in drill(_burn(2)) if check.name == "checksum"]
    assert [(check.subject, check.verdict) for check in wrong] == [("rank 1", "fail")]
    assert "elements from the same product's first result" in wrong[0].reason


@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", [_burn(2), _training(2)], ids=["burn", "training_step"])
def test_a_right_result_passes(drill: Callable[..., Sequence[NodeCheck]], point: Point) -> None:
    """However slow the machine: results repeat bit for bit."""
    (check,) = (check for check in drill(point) if check.name == "checksum")
    assert (check.subject, check.verdict) == ("all ranks", "pass")


@pytest.mark.timeout(600)
def test_a_slow_link_is_named(stage: Path, drill: Callable[..., Sequence[NodeCheck]]) -> None:
    """One direction between two of three ranks takes half a second instead of milliseconds: the slowest link."""
    _break(stage, "copies", "distributed.send(self._own, peer)", f"if (self.ranks.rank, peer) == (1, 2): {_SLOWED}")
    links = [check for check in drill(_COPIES) if check.name == "link"]
    slowest = min(links, key=lambda check: check.value or 0)
    assert (slowest.subject, slowest.verdict) == ("rank 1 → rank 2", "fail")
    assert slowest.value is not None
    assert slowest.value < -0.5
