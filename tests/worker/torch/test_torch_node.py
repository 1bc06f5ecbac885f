"""What measures a node itself, on CPU ranks over gloo and host memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
import torch

from pybench.model.wire import Failure
from pybench.model.workloads.node import (
    Burn,
    Collective,
    HostDeviceCopy,
    LaunchLatency,
    Matmul,
    MemoryBandwidth,
    Operation,
    PeerCopy,
)
from pybench.model.workloads.settings import NodeSettings
from pybench.worker.backend import UnsupportedError
from pybench.worker.backends.common_torch.process_group import TorchRanks, nvls_of_log
from pybench.worker.backends.torch.node.collective import bus_factor, rail_of
from pybench.worker.backends.torch.node.compute import BurnBench, MatmulBench, checksum
from pybench.worker.backends.torch.node.copies import MemoryBandwidthBench
from pybench.worker.backends.torch.node.measured import (
    cache_bytes,
    node_workload,
    num_sets,
    random_bytes,
    random_matrix,
)
from tests.worker.conftest import points_of, run_staged, staged, steps_of

CPU = torch.device("cpu")
ALONE = TorchRanks(0, 1, CPU)
SMALL: dict[str, Any] = {"backend": "torch"}
MATMUL = Matmul(**SMALL, precision="float32", m=32, n=16, k=64, products=3)
BURN = Burn(**SMALL, burn_precision="float32", side=32, burn_s=0.01)


@pytest.mark.parametrize(
    ("line", "has_nvls"),
    [
        ("h:1:2 [0] NCCL INFO NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 24)", True),
        ("h:1:2 [1] NCCL INFO NVLS multicast support is not available on dev 1 (NVLS_NCHANNELS 0)", False),
        ("h:1:2 [0] NCCL INFO NCCL_NVLS_ENABLE set by environment to 0.", None),
    ],
)
def test_nccls_log_states_multicast(line: str, has_nvls: bool | None) -> None:
    """A log without the line leaves it unknown."""
    assert nvls_of_log(f"h:1:2 [0] NCCL INFO Bootstrap: Using eth0\n{line}\n") is has_nvls


OPERATIONS: tuple[Operation, ...] = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "bisection",
)
TALK: dict[str, Any] = {"element": "float32", "message_bytes": 13, "operations": 3}
TWO_RANKS: dict[str, NodeSettings] = {
    **{name: Collective(**SMALL, **TALK, gpus=2, operation=name) for name in OPERATIONS},
    "rails": Collective(**SMALL, **TALK, gpus=2, nodes=2, groups="rails"),
    **{
        name: HostDeviceCopy(**SMALL, gpus=2, direction="both", at_once=name == "at_once", copy_bytes=4096, copies=3)
        for name in ("in_turn", "at_once")
    },
    "burn": Burn(**SMALL, gpus=2, burn_precision="bfloat16", side=32, burn_s=0.01),
}


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory, warm_python: Path) -> dict[str, list[dict[str, float]]]:
    """Each rank's values in its last measured step of each of ``TWO_RANKS``, which one worker measures."""
    first, *then = TWO_RANKS.values()
    stage = staged(tmp_path_factory.mktemp("two"))
    code, streams, log = run_staged(stage, first, None, 2, then=tuple(then), python=warm_python)
    assert code == 0, log
    points = zip(*map(points_of, streams), strict=True)
    return {name: [steps_of(part)[-1].values for part in parts] for name, parts in zip(TWO_RANKS, points, strict=True)}


def test_rails_join_the_same_places_of_all_nodes() -> None:
    """Of three nodes of four: GPU 1 of each."""
    assert rail_of(5, 12, 3) == rail_of(9, 12, 3) == (1, 5, 9)
    assert {rail_of(rank, 12, 3) for rank in range(12)} == {(i, i + 4, i + 8) for i in range(4)}


def test_a_rail_has_the_figures_of_its_own_ranks(two_ranks: dict[str, list[dict[str, float]]]) -> None:
    """All-reduce on the one rail of two nodes of one rank."""
    for found in two_ranks["rails"]:
        assert found["busbw_bytes_per_s"] == pytest.approx(found["algbw_bytes_per_s"] * bus_factor("all_reduce", 2))


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (MATMUL, {"matmul_flops_per_s"}),
        (Matmul(**SMALL, precision="bfloat16", m=32, n=16, k=64, products=3), {"matmul_flops_per_s"}),
        (MemoryBandwidth(**SMALL, pattern="copy", array_bytes=4096, passes=3), {"memory_bytes_per_s"}),
        (MemoryBandwidth(**SMALL, pattern="triad", array_bytes=4096, passes=3), {"memory_bytes_per_s"}),
        (LaunchLatency(**SMALL, launches=20), {"launch_s", "round_trip_s"}),
        (BURN, {"burn_flops_per_s", "mismatched_elements", "checksum"}),
    ],
)
def test_one_rank_measures(settings: NodeSettings, names: set[str]) -> None:
    """Every value is there and positive, but for the elements that differ: none does."""
    with node_workload(settings, ALONE) as workload:
        outcome = workload.step(0)
    assert set(outcome.values) == names
    assert all(value > 0 for name, value in outcome.values.items() if name != "mismatched_elements")
    assert outcome.values.get("mismatched_elements", 0) == 0


@pytest.mark.parametrize("direction", ["h2d", "d2h", "both"])
@pytest.mark.parametrize("at_once", [False, True])
def test_host_copies_without_a_gpu_are_copies_in_host_memory(direction: Any, at_once: bool) -> None:
    """The target has the copied data."""
    settings = HostDeviceCopy(**SMALL, direction=direction, at_once=at_once, copy_bytes=64, copies=2)
    with node_workload(settings, ALONE) as workload:
        pairs: Any = workload._pairs  # type: ignore[attr-defined]
        for source, target in pairs:
            source.fill_(7)
            target.fill_(0)
        assert workload.step(0).values["host_copy_bytes_per_s"] > 0
        assert all(bool((target == 7).all()) for _, target in pairs)
    assert len(pairs) == (2 if direction == "both" else 1)


def test_the_flops_of_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 m n k for each of 3 products, over a time of 2 s; each product has the operands' value."""
    monkeypatch.setattr("pybench.worker.backends.torch.node.compute.timed_s", lambda _device, work: (work(), 2.0)[1])
    bench = MatmulBench(MATMUL, ALONE)
    assert bench.measure() == {"matmul_flops_per_s": 2 * 32 * 16 * 64 * 3 / 2.0}
    left = random_matrix(32, 64, torch.float32, CPU, 0)
    right = random_matrix(16, 64, torch.float32, CPU, 1)
    torch.testing.assert_close(bench._products[0](), left @ right.t())


def test_operands_rotate_through_more_than_the_cache() -> None:
    """Sets of operands together exceed twice the last cache, and a step goes on where the last one ended."""
    bench = MatmulBench(MATMUL, ALONE)
    set_bytes = (32 + 16) * 64 * 4
    assert len(bench._products) * set_bytes > 2 * cache_bytes(CPU)
    bench.measure()
    assert bench._next == 3
    assert num_sets(CPU, 2**40) == 2


def test_operands_are_random_and_repeat() -> None:
    """No zeros; the seed alone decides."""
    matrix = random_matrix(16, 16, torch.bfloat16, CPU, 3)
    assert torch.equal(matrix, random_matrix(16, 16, torch.bfloat16, CPU, 3))
    assert not torch.equal(matrix, random_matrix(16, 16, torch.bfloat16, CPU, 4))
    assert int((matrix == 0).sum()) == 0


@pytest.mark.parametrize("precision", ["tfloat32", "float8_e4m3fn"])
def test_what_a_cpu_cannot_multiply(precision: Any) -> None:
    """The error names the types that it has."""
    with pytest.raises(UnsupportedError, match=r"needs a GPU of compute capability .*; use "):
        MatmulBench(Matmul(**SMALL, precision=precision), ALONE)


def test_what_a_memory_pass_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """STREAM's bytes: two arrays for a copy, three for a triad, in 2 s; a = b + 0.4 c."""
    monkeypatch.setattr("pybench.worker.backends.torch.node.copies.timed_s", lambda _device, work: (work(), 2.0)[1])
    small: dict[str, Any] = {**SMALL, "array_bytes": 400, "passes": 5, "fill": "constant"}
    copy = MemoryBandwidthBench(MemoryBandwidth(**small, pattern="copy"), ALONE)
    triad = MemoryBandwidthBench(MemoryBandwidth(**small, pattern="triad"), ALONE)
    assert copy.measure() == {"memory_bytes_per_s": 2 * 400 * 5 / 2}
    assert triad.measure() == {"memory_bytes_per_s": 3 * 400 * 5 / 2}
    assert torch.equal(copy._arrays[1], torch.ones(100))
    assert triad._arrays[0].tolist() == pytest.approx([2 + 0.4 * 3] * 100)


def test_memory_passes_move_random_numbers() -> None:
    """Unless a suite sets the fill: every number of an array differs, and the arrays differ; a copy arrives."""
    bench = MemoryBandwidthBench(MemoryBandwidth(**SMALL, pattern="copy", array_bytes=400, passes=1), ALONE)
    source, target = bench._arrays
    assert len(set(source.tolist())) == len(source) == 100
    assert not torch.equal(source, target)
    bench.measure()
    assert torch.equal(source, target)


def test_copies_move_random_bytes() -> None:
    """All 256 values are about equally frequent, any size works, and the seed alone decides."""
    found = random_bytes(100_001, CPU, 3)
    counts = torch.bincount(found.long(), minlength=256)
    assert len(found) == 100_001
    # 391 of each are expected, with a standard deviation of 20.
    assert int(counts.min()) > 291
    assert int(counts.max()) < 491
    assert torch.equal(found, random_bytes(100_001, CPU, 3))
    settings = HostDeviceCopy(**SMALL, direction="both", copy_bytes=4096)
    with node_workload(settings, ALONE) as workload:
        pairs: Any = workload._pairs  # type: ignore[attr-defined]
    assert all(len(set(source.tolist())) > 200 for source, _ in pairs)


def test_a_flipped_bit_is_a_mismatch() -> None:
    """One wrong bit in the reference shows in every product after it, and another result has another checksum."""
    bench = BurnBench(BURN, ALONE)
    healthy = bench.measure()
    bench._reference.view(torch.int32)[3, 4] ^= 1
    assert bench.measure()["mismatched_elements"] >= 1
    bench._left[0, 0] += 1
    assert bench.measure()["checksum"] != healthy["checksum"]
    assert BurnBench(BURN, ALONE).measure()["checksum"] == healthy["checksum"]


def test_a_checksum_sees_bits_and_places() -> None:
    """A flipped sign of zero, and two elements that changed places."""
    values = random_matrix(4, 4, torch.float32, CPU, 0)
    exchanged = values.clone()
    exchanged[0, 0], exchanged[0, 1] = values[0, 1], values[0, 0]
    assert checksum(values) == checksum(values.clone()) != checksum(exchanged)
    assert checksum(torch.zeros(2, 2)) != checksum(-torch.zeros(2, 2))
    assert checksum(torch.full((2, 2), torch.nan)) == checksum(torch.full((2, 2), torch.nan))


@pytest.mark.parametrize(
    ("operation", "num_ranks", "factor"),
    [
        ("all_reduce", 2, 1.0),
        ("all_reduce", 4, 1.5),
        ("all_gather", 4, 0.75),
        ("reduce_scatter", 8, 0.875),
        ("all_to_all", 2, 0.5),
        ("broadcast", 8, 1.0),
    ],
)
def test_bus_factors(operation: str, num_ranks: int, factor: float) -> None:
    """As nccl-tests' doc/PERFORMANCE.md has them."""
    assert bus_factor(operation, num_ranks) == factor


@pytest.mark.parametrize("operation", OPERATIONS)
def test_two_ranks_talk(two_ranks: dict[str, list[dict[str, float]]], operation: Operation) -> None:
    """Over gloo; the message is rounded up to whole elements on both ranks."""
    for found in two_ranks[operation]:
        assert found["algbw_bytes_per_s"] == pytest.approx(16 / found["collective_s"])
        assert found["busbw_bytes_per_s"] == pytest.approx(found["algbw_bytes_per_s"] * bus_factor(operation, 2))


def test_three_ranks_copy_to_each_other(run_worker: Any) -> None:
    """Six links: every rank reports those that it sends over, and the slowest of them."""
    code, streams, log = run_worker(PeerCopy(**SMALL, gpus=3, peer_bytes=4096, peer_copies=3), None, 3)
    assert code == 0, log
    for rank, events in enumerate(streams):
        own = steps_of(events)[-1].values
        links = {f"link_to_{peer}_bytes_per_s" for peer in range(3) if peer != rank}
        assert set(own) == {"peer_copy_bytes_per_s", *links}
        assert own["peer_copy_bytes_per_s"] == min(own[link] for link in links)


@pytest.mark.parametrize("order", ["in_turn", "at_once"])
def test_two_ranks_copy_in_turn_or_at_once(two_ranks: dict[str, list[dict[str, float]]], order: str) -> None:
    """Each has its own figure."""
    assert [found["host_copy_bytes_per_s"] > 0 for found in two_ranks[order]] == [True, True]


def test_ranks_burn_to_one_checksum(two_ranks: dict[str, list[dict[str, float]]]) -> None:
    """Equal operands on all ranks."""
    first, second = two_ranks["burn"]
    assert first["checksum"] == second["checksum"]


def test_an_impossible_precision_is_reported(run_worker: Any) -> None:
    """As unsupported, not as a crash."""
    code, streams, _ = run_worker(Matmul(**SMALL, precision="tfloat32"), None)
    failure = streams[0][-1]
    assert code == 1
    assert isinstance(failure, Failure)
    assert failure.cause == "unsupported"
