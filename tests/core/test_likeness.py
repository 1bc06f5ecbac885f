"""Hosts that are not alike, each difference in a line with its remedy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pybench.model.machine import Host, Software
from pybench.run.hosts.gathering import unlike
from tests.builders import H200, HOST, MACHINE

A = HOST
B = replace(A, name="b", boot_id="boot-b")
H100 = replace(H200, name="NVIDIA H100", uuid="GPU-b")


def test_alike_hosts() -> None:
    """Other UUIDs and boots, clocks a second apart."""
    machine = replace(MACHINE, gpus=(replace(H200, uuid="GPU-b"),))
    assert unlike((A, replace(B, machine=machine)), (0.0, 1.0)) == ()


@pytest.mark.parametrize(
    ("other", "wall_s", "line"),
    [
        (replace(B, name="a"), 0, "2 hosts are called a; give each its own with PYBENCH_HOST_NAME"),
        (replace(B, pybench_version="1.1"), 0, "host b: pybench 1.1, a has 1.0; install the same on both"),
        (replace(B, worker_sha256="beef" * 16), 0, "host b: worker's source beefbeefbeef, a has f00df00df00d; install"),
        (replace(B, machine=replace(MACHINE, driver="570.0")), 0, "host b: driver 570.0, a has 580.1; install"),
        (replace(B, machine=replace(MACHINE, gpus=(H100,))), 0, "host b: GPUs 1 x NVIDIA H100, a has 1 x NVIDIA H200"),
        (replace(B, machine=replace(MACHINE, gpus=())), 0, "host b: GPUs none, a has 1 x NVIDIA H200; use hosts"),
        (
            replace(B, machine=replace(MACHINE, network="ethernet")),
            0,
            "host b: network ethernet, a has none; make the ports of their cards active, or set NCCL_IB_DISABLE=1",
        ),
        (replace(B, engine="apptainer"), 0, "host b: engine apptainer, a has none; name one with --engine on both"),
        (
            replace(B, software=Software(python="3.12.1", packages={"torch": "2.10"})),
            0,
            "host b: package torch 2.10, a has 2.11; install the same on both, or give --python",
        ),
        (B, 3600, "host b: its wall clock is 3600 s ahead of that of a; have NTP set both (timedatectl set-ntp true)"),
        (B, -3600, "host b: its wall clock is 3600 s behind that of a; have NTP"),
    ],
)
def test_each_difference_is_one_line(other: Host, wall_s: float, line: str) -> None:
    (found,) = unlike((A, other), (0.0, wall_s))
    assert found.startswith(line)
