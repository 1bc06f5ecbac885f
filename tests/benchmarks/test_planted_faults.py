"""Faults planted in simulated machines: how often a machine fails with the right part named, and a healthy one fails.

Of a node: throughputs of GPUs and links as :mod:`tests.nodes` draws them. Of a scaling: a step's products, the part of
communication that is exposed, and the time that others wait for the slowest GPU.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from pybench.core.measurements import Measurements
from pybench.core.node_checks import node_checks
from pybench.core.scaling import judged_ratio
from pybench.core.statistics.interval import Samples
from pybench.files.shipped import load_bands
from pybench.model.suite import Plan
from pybench.model.verdict import Prediction
from tests.benchmarks.tables import write_table
from tests.build import Build
from tests.nodes import Node

NODES = 60
RUNS = 2000
ATTEMPTS = 3
EXPOSED_FRACTION = 0.15
"""Communication that products do not hide, over them: that of the kept trainings with most."""
ERROR = {"train data_parallel": 0.0258, "generate vllm tensor_parallel": 0.0218}
"""Standard deviation of a healthy machine's speedup about its prediction, over kept runs: docs/explain.md."""


def _nothing(_node: Node) -> None:
    """Healthy."""


def _slow_link(node: Node) -> None:
    """One direction between GPUs 1 and 0 has 90 % of its bandwidth."""
    link = "link_to_0_bytes_per_s"
    node.change_values(
        lambda _name, rank, values: {k: v * (0.9 if (k, rank) == (link, 1) else 1.0) for k, v in values.items()}
    )


def _slow_rank(node: Node) -> None:
    """GPU 1 computes 10 % slower than it would."""
    rates = {"matmul_flops_per_s", "burn_flops_per_s", "memory_bytes_per_s"}
    node.change_values(
        lambda _name, rank, values: {k: v * (0.9 if k in rates and rank == 1 else 1.0) for k, v in values.items()}
    )


NODE_FAULTS: dict[str, tuple[Callable[[Node], None], str]] = {
    "healthy": (_nothing, ""),
    "one link 10 % slower": (_slow_link, "GPU 1 (GPU-1) → GPU 0 (GPU-0)"),
    "one GPU 10 % slower": (_slow_rank, "GPU 1 (GPU-1)"),
    "one NVLink of 18 down": (_nothing, "GPU 1 (GPU-1)"),
}


def test_faults_of_a_node(benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Share of nodes that fail, that name the planted part, and that name another one."""
    rows = benchmark.pedantic(_faults_of_a_node, rounds=1)
    write_table("explain.md", "faults of a node", rows, capsys)


def _faults_of_a_node() -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("planted in a node of GPUs", "GPUs", "fails", "names it", "names another", "undecided")
    ]
    for fault, (plant, subject) in NODE_FAULTS.items():
        for num_gpus in (2, 4, 8):
            counts: Counter[str] = Counter()
            for seed in range(NODES):
                node = Node(seed=seed, num_attempts=ATTEMPTS, num_gpus=num_gpus)
                plant(node)
                machine = node.machine
                if "NVLink" in fault:
                    gpus = (machine.gpus[0], dataclasses.replace(machine.gpus[1], num_nvlinks=17), *machine.gpus[2:])
                    machine = dataclasses.replace(machine, gpus=gpus)
                checks = node_checks(Measurements.of(node.plan, node.records), machine)
                failed = {check.subject for check in checks if check.verdict == "fail"}
                counts["fails"] += bool(failed)
                counts["names it"] += subject in failed
                counts["names another"] += bool(failed - {subject})
                counts["undecided"] += not failed and any(check.verdict == "inconclusive" for check in checks)
            shares = (f"{100 * counts[name] / NODES:.1f} %" for name in rows[0][2:])
            rows.append((fault, str(num_gpus), *shares))
            if fault == "healthy":
                assert counts["fails"] <= 0.05 * NODES
    return rows


SCALING_FAULTS = {
    "healthy": (1.0, 1.0, ""),
    "communication at 90 % of its bandwidth": (1.0, 1 / 0.9, "communication"),
    "communication at half of its bandwidth": (1.0, 2.0, "communication"),
    "communication at a fifth of its bandwidth": (1.0, 5.0, "communication"),
    "one GPU 10 % slower": (1 / 0.9, 1.0, "imbalance"),
    "one GPU 20 % slower": (1 / 0.8, 1.0, "imbalance"),
}
"""Time of the slowest GPU's products and of exposed communication over what was predicted, and the part to name."""


def test_faults_of_a_scaling(benchmark: Any, build: Build, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs judged by prediction: three attempts that scatter by 0.3 %, and the errors of healthy predictions."""
    rows = benchmark.pedantic(_faults_of_a_scaling, (build,), rounds=1)
    write_table("explain.md", "faults of a scaling", rows, capsys)


def _faults_of_a_scaling(build: Build) -> list[tuple[str, ...]]:
    base, point = build.train(1), build.train(2)
    heads = ("planted in a scaling", *(f"{kind}, band {load_bands()[kind].fraction:.1%}" for kind in ERROR))
    rows: list[tuple[str, ...]] = [(*heads, "names the part, of those that fail")]
    linear = 2.0
    for fault, (slowest, communication, part) in SCALING_FAULTS.items():
        shares, named, failed = [], 0, 0
        for kind, error in ERROR.items():
            random = np.random.default_rng(5)
            band, fails = load_bands()[kind].fraction, 0
            predicted_s = 1 + EXPOSED_FRACTION
            for _ in range(RUNS):
                exposed_s = EXPOSED_FRACTION * communication
                step_s = (slowest + exposed_s) * np.exp(error * random.standard_normal())
                samples: dict[str, Mapping[str, Samples]] = {
                    name: {
                        "tokens_per_s": tuple(
                            (rate * np.exp(0.003 * random.standard_normal()),) for _ in range(ATTEMPTS)
                        ),
                        "exposed_communication_fraction": ((exposed_s / (slowest + exposed_s),),) * ATTEMPTS,
                        "straggler_gap_fraction": ((slowest - 1,),) * ATTEMPTS,
                    }
                    for name, rate in ((base.id, 1.0), (point.id, linear / step_s))
                }
                prediction = Prediction(
                    point_id=point.id, baseline_id=base.id, speedup=linear / predicted_s, band_fraction=band, source="",
                    communication_fraction=EXPOSED_FRACTION / predicted_s,
                )  # fmt: skip
                measurements = Measurements(Plan(points=(base, point), skips=()), (), samples)
                _, (verdict, reason, *_) = judged_ratio(
                    measurements, "tokens_per_s", point, base, prediction.expected, linear, prediction
                )
                fails += verdict == "fail"
                named += verdict == "fail" and bool(part) and part in reason
            failed += fails
            shares.append(f"{100 * fails / RUNS:.1f} %")
            if fault == "healthy":
                assert fails <= 0.05 * RUNS
        rows.append((fault, *shares, f"{100 * named / failed:.0f} %" if failed and part else "-"))
    return rows
