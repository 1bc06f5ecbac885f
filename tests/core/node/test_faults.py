"""Faults in a report of a failed node check: each broken part once, with every check that shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pybench.core.node_faults import Fault, faults, remedies
from tests.builders import POINT_RESULT
from tests.nodes import Node


def _found(node: Node) -> tuple[Fault, ...]:
    points = [replace(POINT_RESULT, id=point.id, benchmark=point.benchmark) for point in node.plan.points]
    return faults(node.checks(), points, node.machine.gpus)


def _slow(node: Node, gpu: int, factors: dict[str, float]) -> None:
    node.change_values(
        lambda workload, rank, values: {
            name: value * factors.get(workload, 1.0) if rank == gpu and name.endswith("_per_s") else value
            for name, value in values.items()
        }
    )


def test_a_slow_gpu_is_named_once_with_its_slot_and_every_benchmark() -> None:
    """The sentence begins with the GPU; the remedy has its index."""
    node = Node(num_gpus=4, num_attempts=4)
    _slow(node, 2, {"matmul": 0.47, "memory": 0.49})
    (fault,) = _found(node)
    start = "GPU 2 (PCI 0000:1b:00) is 53 % slower than its neighbours in matmul and 51 % in memory"
    assert (fault.part, fault.kind, fault.gpus) == ("GPU", "slow_gpu", (2,))
    assert fault.sentence.startswith(start)
    assert "nvidia-smi -i 2 " in remedies((fault,))["slow_gpu"]


def test_heat_decides_what_to_do_about_a_gpu_that_is_slow_too() -> None:
    """It is the cause; the slowness is still named first."""
    node = Node(num_gpus=4, num_attempts=4)
    _slow(node, 1, {"matmul": 0.5})
    node.change_conditions(1, temperature_c=90.0, clock_event_reasons=0x48)
    (fault,) = _found(node)
    assert fault.kind == "heat"
    assert "slower than its neighbours in matmul" in fault.sentence.partition(";")[0]


@pytest.mark.parametrize(
    ("change", "part", "kind"),
    [
        (lambda node: node.change_counters(1, remap_failed=True), "GPU", "memory_errors"),
        (lambda node: _slow(node, 1, {"host_copy": 0.5}), "host", "slow_host_copies"),
        (lambda node: [node.change_conditions(gpu, clock_event_reasons=0x40) for gpu in node.gpus], "host", "heat"),
        (lambda node: _slow(node, 3, {"peer_copy": 0.5}), "link", "slow_link"),
    ],
)
def test_each_kind_points_to_a_part(change: Callable[[Node], object], part: str, kind: str) -> None:
    """A fault of all GPUs is the host's; many slow links of one GPU are one fault."""
    node = Node(num_gpus=4, num_attempts=4)
    change(node)
    assert [(fault.part, fault.kind) for fault in _found(node)] == [(part, kind)]


def test_one_slow_link_names_its_two_ends() -> None:
    """Both directions are one link."""
    node = Node(num_gpus=4, num_attempts=4)

    def slow(_workload: str, rank: int, values: dict[str, float]) -> dict[str, float]:
        other = {0: 1, 1: 0}.get(rank)
        return {n: v * 0.6 if n == f"link_to_{other}_bytes_per_s" else v for n, v in values.items()}

    node.change_values(slow)
    (fault,) = _found(node)
    assert fault.sentence.startswith(
        "the link between GPU 0 (PCI 0000:19:00) and GPU 1 (PCI 0000:1a:00) is 40 % slower"
    )


def test_a_healthy_node_has_no_fault() -> None:
    """No fault is found on equal GPUs; the documents' table holds causes of every kind."""
    assert _found(Node(num_gpus=4, num_attempts=4)) == ()
