"""What two runs must share to be compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pybench.core.provenance import differences, fingerprint, machine_fields, software_of
from pybench.model.container import ContainerSetup
from pybench.model.machine import Machine
from pybench.model.record import RankReport
from tests.builders import H200, HEADER, IMAGE, MACHINE, MANIFEST, RECORD


def test_fields_of_a_machine() -> None:
    """GPUs by UUID: two boards of one kind are two machines."""
    assert machine_fields(MACHINE) == {
        "gpus": '["NVIDIA H200 GPU-0"]',
        "power_limits_w": "[700.0]",
        "mig": "[null]",
        "ecc": "[true]",
        "fabric": '"nvlink"',
        "driver": '"580.1"',
        "cpu": '["A CPU", 8]',
        "kernel": '"6.1"',
    }


@pytest.mark.parametrize(
    "other",
    [
        replace(MACHINE, driver="581.0"),
        replace(MACHINE, gpus=(replace(H200, power_limit_w=650.0),)),
        replace(MACHINE, gpus=(replace(H200, mig_enabled=False),)),
        replace(MACHINE, gpus=(replace(H200, uuid="GPU-9"),)),
        replace(MACHINE, gpus=(H200, replace(H200, uuid="GPU-1"))),
        replace(MACHINE, kernel="6.8"),
    ],
)
def test_what_makes_another_machine(other: Machine) -> None:
    assert fingerprint(machine_fields(other)) != fingerprint(machine_fields(MACHINE))


@pytest.mark.parametrize(
    "other",
    [
        replace(MACHINE, git_commit="def", git_dirty=True),
        replace(MACHINE, packages={**MACHINE.packages, "torch": "2.10"}),
    ],
)
def test_what_does_not(other: Machine) -> None:
    """Packages belong to the software."""
    assert fingerprint(machine_fields(other)) == fingerprint(machine_fields(MACHINE))


def test_software() -> None:
    """Packages as workers saw them, images and variables; the order of images has no meaning."""
    images = tuple(replace(IMAGE, id=digest) for digest in ("sha256:b", "sha256:a"))
    container = ContainerSetup(
        engine="docker",
        engine_version=None,
        runtime=None,
        rootless=False,
        lock="",
        images=images,
        mounts=(),
        relaxations=(),
    )
    manifest = replace(MANIFEST, container=container, environment={"NCCL_ALGO": "Ring"})
    rank = RankReport(header=replace(HEADER, python="3.12", packages={"peft": "0.21"}))
    fields = software_of(manifest, [replace(RECORD, ranks=(rank,))])
    assert fields == {
        "python": "3.12",
        "peft": "0.21",
        "images": '["sha256:a", "sha256:b"]',
        "$NCCL_ALGO": "Ring",
    }
    assert fingerprint(fields) != fingerprint({**fields, "$NCCL_ALGO": "Tree"})


def test_differences_name_both_sides() -> None:
    """A missing field is ``none``; equal fields are not listed."""
    assert differences({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "4", "d": "5"}) == [
        "b: 2 -> 4",
        "c: 3 -> none",
        "d: none -> 5",
    ]


def test_fingerprint_is_short_hex() -> None:
    value = fingerprint(machine_fields(MACHINE))
    assert len(value) == 12
    assert int(value, 16) >= 0


@pytest.mark.parametrize(("cpus", "ranges"), [((0,), "0"), ((0, 1, 2, 3), "0-3"), ((0, 2, 3, 8), "0,2-3,8"), ((), "")])
def test_cpus_are_written_as_taskset_reads_them(cpus: tuple[int, ...], ranges: str) -> None:
    assert replace(MACHINE, cpus=cpus).cpu_ranges == ranges
