"""What two runs must share to be compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pybench.compute.fingerprint import fingerprint, fingerprint_fields
from pybench.model.machine import Machine
from tests.builders import H200, MACHINE


def test_fields() -> None:
    assert fingerprint_fields(MACHINE) == {
        "gpus": '["NVIDIA H200"]',
        "power_limits_w": "[700.0]",
        "mig": "[null]",
        "ecc": "[true]",
        "fabric": '"nvlink"',
        "driver": '"580.1"',
        "cpu": '["A CPU", 8]',
        "image": "null",
        "torch": '"2.9"',
        "transformers": "null",
        "vllm": "null",
        "tensorrt-llm": "null",
        "nvidia-nccl-cu13": "null",
        "nvidia-nccl-cu12": "null",
    }


@pytest.mark.parametrize(
    "other",
    [
        replace(MACHINE, driver="581.0"),
        replace(MACHINE, gpus=(replace(H200, power_limit_w=650.0),)),
        replace(MACHINE, gpus=(replace(H200, mig_enabled=False),)),
        replace(MACHINE, gpu_names=("NVIDIA H200", "NVIDIA H200")),
        replace(MACHINE, packages={**MACHINE.packages, "torch": "2.10"}),
        replace(MACHINE, container_image="bench:1"),
    ],
)
def test_what_makes_runs_incomparable(other: Machine) -> None:
    assert fingerprint(other) != fingerprint(MACHINE)


@pytest.mark.parametrize(
    "other",
    [
        replace(MACHINE, git_commit="def", git_dirty=True),
        replace(MACHINE, gpus=(replace(H200, uuid="GPU-9"),)),
        replace(MACHINE, packages={**MACHINE.packages, "numpy": "2.1"}),
        replace(MACHINE, kernel="6.8"),
    ],
)
def test_what_does_not(other: Machine) -> None:
    assert fingerprint(other) == fingerprint(MACHINE)


def test_fingerprint_is_short_hex() -> None:
    value = fingerprint(MACHINE)
    assert len(value) == 12
    assert int(value, 16) >= 0
