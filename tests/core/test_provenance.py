"""Provenance of a run: machine, workers and joules."""

from __future__ import annotations

from dataclasses import replace

from pybench.core.provenance import provenance, software_of, worker_packages
from pybench.model.record import Record
from tests.build import Build
from tests.builders import H200, MACHINE
from tests.explain.conftest import Runs


def with_packages(record: Record, **packages: str) -> Record:
    ranks = tuple(replace(rank, header=replace(rank.header, packages=packages)) for rank in record.ranks)
    return replace(record, ranks=ranks)


def test_gpus_fabric_and_energy_scope(build: Build) -> None:
    """Every GPU with its limits; the scope of joules is listed once, and only if joules were measured."""
    point = build.generate()
    manifest = replace(Runs(build).manifest((point,)), machine=MACHINE, environment={"NCCL_ALGO": "Ring"})
    measured = provenance(manifest, build.measured(point, [[2.0]], energy=build.energy([40.0], 2.0)))
    assert measured.gpus == (H200,)
    assert (measured.fabric, measured.topology) == ("nvlink", (("X",),))
    assert measured.environment == {"NCCL_ALGO": "Ring"}
    assert measured.energy_scope is not None
    assert measured.energy_scope.scope == "gpu_board"
    assert measured.energy_scope.excluded == ("NVSwitch", "PCIe switches", "CPU", "host memory")
    assert provenance(manifest, build.measured(point, [[2.0]])).energy_scope is None


def test_a_sensor_of_a_module_includes_its_cpu(build: Build) -> None:
    point = build.generate()
    energy = replace(build.energy([40.0], 2.0), scope="module")
    found = provenance(Runs(build).manifest((point,)), build.measured(point, [[2.0]], energy=energy)).energy_scope
    assert found is not None
    assert (found.scope, found.excluded) == ("module", ("NVSwitch", "PCIe switches"))


def test_packages_are_those_of_every_worker(build: Build) -> None:
    """Where two workers saw different versions both stand there, and the software key is another."""
    point = build.generate()
    one, two = build.measured(point, [[2.0]] * 2)
    same = (with_packages(one, peft="0.21"), with_packages(two, peft="0.21"))
    other = (with_packages(one, peft="0.21"), with_packages(two, peft="0.22"))
    assert worker_packages(same)["peft"] == "0.21"
    assert worker_packages(other)["peft"] == "0.21, 0.22"
    manifest = Runs(build).manifest((point,))
    assert software_of(manifest, same) == software_of(manifest, same[:1])
    assert software_of(manifest, same) != software_of(manifest, other)
