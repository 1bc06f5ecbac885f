"""One process, several points: the real backends, on CPU ranks."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from pybench.model.wire import Header, Metric, Phase, Step
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.node import Collective, LaunchLatency, Matmul, MemoryBandwidth
from pybench.model.workloads.settings import BackendName
from pybench.worker import exchange
from pybench.worker.exchange import wait_for_go
from tests.worker.conftest import points_of, steps_of

pytest.importorskip("transformers")

from pybench.worker.backends.common_torch import memory
from pybench.worker.backends.common_torch.memory import ResidentSet


class Cycle:
    """Freed by the collector alone."""

    def __init__(self) -> None:
        self.own = self


def peak_bytes(events: list[Any]) -> float:
    (peak,) = (event.value for event in events if isinstance(event, Metric) and event.name == "peak_memory_bytes")
    return float(peak)


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_measure_a_node_point_after_point(run_worker: Any, ranks: int) -> None:
    """Different workloads over one process group. The memory of a large one is not that of the small one behind it."""
    large = MemoryBandwidth(backend="torch", gpus=ranks, array_bytes=2**28, passes=1)
    product = Matmul(backend="torch", gpus=ranks, precision="float32", m=16, n=16, k=16, products=2)
    last = Collective(backend="torch", gpus=2, message_bytes=64) if ranks > 1 else LaunchLatency(backend="torch")
    # The product's operands exceed the CPU's cache, however large that is.
    code, streams, log = run_worker(large, None, ranks, then=(last, product))
    assert code == 0, log
    for rank, events in enumerate(streams):
        points = points_of(events)
        assert len(points) == 3
        for point in points:
            assert isinstance(point[0], Header)
            assert point[0].rank == rank
            assert [event.name for event in point if isinstance(event, Phase)] == [
                *("prepare", "warmup", "measure", "finish"),
            ]
            assert len(steps_of(point)) == 2
        assert peak_bytes(points[0]) > peak_bytes(points[1]) + 2**28


@pytest.mark.parametrize("backend", ["torch", "transformers"])
def test_a_model_stays_for_points_of_other_sizes(
    run_worker: Any, architecture: dict[str, Any], backend: BackendName
) -> None:
    """Each point has its batch in each of its steps."""
    sizes = ((3, 5, 4), (1, 7, 2), (3, 5, 4))
    first, *then = (
        Generate(backend=backend, model="tiny", dtype="float32", batch_size=b, prompt_tokens=p, output_tokens=o)
        for b, p, o in sizes
    )
    code, [events], log = run_worker(first, architecture, then=tuple(then))
    assert code == 0, log
    for point, (batch, prompt, output) in zip(points_of(events), sizes, strict=True):
        for step in (event for event in point if isinstance(event, Step)):
            work = step.work
            assert (work.samples, work.prompt_tokens, work.output_tokens) == (batch, batch * prompt, batch * output)
            assert len(step.token_end_ns) == output


def test_a_peak_that_cannot_be_set_back_is_known_once_it_is_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, it may be another point's."""
    monkeypatch.setattr(memory, "_PROC", tmp_path)
    (tmp_path / "clear_refs").mkdir()  # nobody can write there
    (tmp_path / "status").write_text("Name:\tpython\nVmHWM:\t     100 kB\n")
    resident = ResidentSet()
    assert resident.peak_bytes() == 102_400
    resident.forget_peak()
    assert resident.peak_bytes() is None
    (tmp_path / "status").write_text("VmHWM:\t     101 kB\n")
    assert resident.peak_bytes() == 103_424


def test_what_lives_before_a_point_is_spared_by_the_collector() -> None:
    """The point's objects are not frozen: their cycles are freed."""
    begun = []

    @contextmanager
    def session(_order: Any) -> Iterator[Any]:
        begun.append(gc.get_freeze_count())
        yield None

    before = gc.get_freeze_count()
    try:
        with memory.with_own_memory(session, ())(cast("Any", None)):
            left = weakref.ref(Cycle())
            gc.collect()
            assert left() is None
        assert begun[0] > before
    finally:
        gc.unfreeze()


def test_a_host_that_says_nothing_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that no one ends must not wait for ever."""
    monkeypatch.setattr(exchange, "_PATIENCE_S", 0.0)
    with pytest.raises(TimeoutError, match="did not release order 2 within 0 s"):
        wait_for_go(tmp_path, 2)
    (tmp_path / "go.2").touch()
    wait_for_go(tmp_path, 2)
