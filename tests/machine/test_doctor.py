"""The doctor's findings on invented machines."""

from __future__ import annotations

import os
import resource
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from types import ModuleType
from typing import NamedTuple

import pynvml
import pytest

from pybench.machine import doctor
from pybench.machine.doctor import examine
from pybench.machine.environment import snapshot
from pybench.model.backend import BACKENDS
from pybench.model.machine import DoctorFinding, GpuInfo, Machine
from pybench.model.record import Xid
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("machine.doctor")

Tell = Callable[..., None]

PACKAGES = {package for traits in BACKENDS.values() for package in traits.packages}


class Usage(NamedTuple):
    """As ``shutil.disk_usage`` answers."""

    total: int
    used: int
    free: int


@pytest.fixture
def healthy(fake_nvml: Tell, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Two GPUs, an idle machine with room, and a torch that can use them."""
    fake_nvml()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    machine = snapshot()
    unlimited = tuple(replace(gpu, power_limit_w=gpu.power_limit_default_w) for gpu in machine.gpus)
    machine = replace(machine, gpus=unlimited)
    monkeypatch.setattr(doctor, "snapshot", lambda _notify=None: machine)
    monkeypatch.setattr(doctor, "read_xids", lambda: ())
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(2**40, 0, 2**40))
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    monkeypatch.setattr(doctor, "_version", {**dict.fromkeys(PACKAGES, "1.0"), "torch": "2.11.0+cu130"}.get)
    return machine


def found(name: str) -> DoctorFinding:
    (only,) = (finding for finding in examine() if finding.name == name)
    return only


def test_a_healthy_machine_needs_nothing(healthy: Machine) -> None:
    """Everything is ok and no remedy is given."""
    findings = examine()
    assert {finding.state for finding in findings} == {"ok"}
    assert not [finding.remedy for finding in findings if finding.remedy]
    assert found("GPUs").found == f"2 x NVIDIA H200 of 140 GiB, driver {healthy.driver}"
    assert found("GPU links").found == "NV18: 1 pair"
    assert found("backend torch").found == "torch 2.11.0+cu130, transformers 1.0"


def test_no_driver_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Suites still run, on the CPU."""
    monkeypatch.setenv("PYBENCH_NVML_LIBRARY", "/nowhere/libnvidia-ml.so.1")
    gpus = found("GPUs")
    assert gpus.state == "warning"
    assert gpus.found == SENTENCES["no_driver_is_a_warning"]
    assert "install the NVIDIA driver" in gpus.remedy


@pytest.mark.usefixtures("fresh_nvml")
def test_a_driver_that_shows_no_gpu_is_not_to_be_installed(fake_nvml: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvml(devices=2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,0")
    gpus = found("GPUs")
    assert gpus.found.startswith("CUDA_VISIBLE_DEVICES hides every GPU, by 0,0: ")
    assert gpus.remedy.startswith("name whole GPUs, not MIG instances, or unset CUDA_VISIBLE_DEVICES; until then ")
    assert gpus.state == "missing"


def test_a_lost_gpu_is_a_warning(healthy: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told with its reason; the others are as healthy as before."""
    machine = replace(healthy, gpu_faults=("GPU 2 can't be queried: GPU is lost",))
    monkeypatch.setattr(doctor, "snapshot", lambda _notify=None: machine)
    lost = found("GPU left out")
    assert (lost.state, lost.found) == ("warning", SENTENCES["a_lost_gpu_is_a_warning"])
    assert "kernel's log" in lost.remedy
    assert found("GPUs").state == "ok"


def test_a_gpu_that_takes_no_programs_has_its_own_remedy(
    fake_nvml: Tell, healthy: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvml(compute_mode="2;0")
    monkeypatch.setattr(doctor, "snapshot", lambda _notify=None: replace(healthy, gpu_faults=snapshot().gpu_faults))
    prohibited = found("GPU left out")
    assert prohibited.found == SENTENCES["a_gpu_that_takes_no_programs_has_its"]
    assert prohibited.remedy == SENTENCES["a_gpu_that_takes_no_programs_has_its_2"]


@pytest.mark.usefixtures("healthy")
def test_no_whole_backend_stops_pybench(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that brings one."""
    monkeypatch.setattr(doctor, "_version", {"torch": "2.11.0"}.get)
    backend = found("backend torch")
    assert (backend.state, backend.found) == ("missing", "torch 2.11.0, transformers not installed")
    assert backend.remedy == SENTENCES["no_whole_backend_stops_pybench"]


@pytest.mark.usefixtures("healthy")
def test_one_backend_suffices(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that lives in its image need not be in this Python."""
    monkeypatch.setattr(doctor, "_version", {"torch": "2.11.0+cu130", "transformers": "5.0"}.get)
    engine = found("backend vllm")
    assert (engine.state, engine.found) == ("warning", SENTENCES["one_backend_suffices"])
    assert "use its image" in engine.remedy


def test_a_package_that_is_not_installed_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked of the installation itself, which has the one and not the other."""
    traits = replace(BACKENDS["torch"], packages=("click", "no-such-package"))
    monkeypatch.setattr(doctor, "BACKENDS", {"torch": traits})
    backend = found("backend torch")
    click = f"click {metadata.version('click')}"
    assert (backend.state, backend.found) == ("missing", f"{click}, no-such-package not installed")


@pytest.mark.usefixtures("healthy")
def test_no_shared_memory_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container without it."""
    monkeypatch.setattr(doctor, "_SHM", "/nowhere/shm")
    memory = found("shared memory")
    assert (memory.state, memory.found) == ("warning", "/nowhere/shm does not exist")
    assert "mount" in memory.remedy


@pytest.mark.usefixtures("healthy")
def test_a_cpu_torch_beside_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would leave them idle."""
    monkeypatch.setattr(doctor, "_version", {"torch": "2.11.0+cpu", "transformers": "5.0"}.get)
    assert found("backend torch").state == "warning"
    assert "CUDA build" in found("backend torch").remedy


@pytest.mark.usefixtures("healthy")
@pytest.mark.parametrize(("name", "module"), [("power sampler", "_nvml"), ("energy estimate", "_energy")])
def test_extensions_are_looked_for(monkeypatch: pytest.MonkeyPatch, name: str, module: str) -> None:
    """Without the first no power is known, without the second no joules; an older build is none."""
    assert (found(name).state, found(name).found) == ("ok", "extension built")
    monkeypatch.setitem(sys.modules, f"pybench.{module}", ModuleType(module))
    older = found(name)
    assert older.state == "missing"
    assert older.found == f"extension pybench.{module} is an older build"
    assert older.remedy == SENTENCES["extensions_are_looked_for"]
    monkeypatch.setitem(sys.modules, f"pybench.{module}", None)
    assert found(name).found.startswith(f"extension pybench.{module} not built: ")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"mig_enabled": True}, "MIG is on"),
        ({"ecc_enabled": False}, "ECC is off"),
        ({"persistence_enabled": False}, "persistence mode is off"),
        ({"power_limit_w": 500.0}, "power limit 500 W of 700 W"),
    ],
)
def test_settings_that_bend_a_gpus_figures(
    healthy: Machine, monkeypatch: pytest.MonkeyPatch, change: dict[str, object], says: str
) -> None:
    """The GPU is named; the other one has no line."""
    odd: GpuInfo = replace(healthy.gpus[1], **change)  # type: ignore[arg-type]
    changed = replace(healthy, gpus=(healthy.gpus[0], odd))
    monkeypatch.setattr(doctor, "snapshot", lambda _notify=None: changed)
    assert found("GPU 1").found == says
    assert found("GPU 1").state == "warning"
    assert not [finding for finding in examine() if finding.name == "GPU 0"]


def _of(*vram_gib: float | None, healthy: Machine) -> Machine:
    """A machine with so many GPUs."""
    gpus = tuple(replace(healthy.gpus[0], index=index, vram_gib=size) for index, size in enumerate(vram_gib))
    return replace(healthy, gpus=gpus)


@pytest.mark.parametrize(
    ("vram_gib", "says"),
    [
        ((79.65, 79.65, 79.65), "3 x NVIDIA H200 of 79.7 GiB"),
        ((79.65, 140.4), "1 x NVIDIA H200 of 79.7 GiB, 1 x NVIDIA H200 of 140 GiB"),
        ((None,), "1 x NVIDIA H200"),
    ],
)
def test_gpus_are_counted_by_kind_and_memory(
    healthy: Machine, monkeypatch: pytest.MonkeyPatch, vram_gib: tuple[float | None, ...], says: str
) -> None:
    """Each kind once, whatever their number."""
    monkeypatch.setattr(doctor, "snapshot", lambda _notify=None: _of(*vram_gib, healthy=healthy))
    assert found("GPUs").found == f"{says}, driver {healthy.driver}"


def test_a_driver_that_does_not_name_its_version_has_an_unknown_one(
    healthy: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its GPUs are found all the same."""
    monkeypatch.setattr(doctor, "snapshot", lambda _notify=None: replace(healthy, driver=None))
    assert found("GPUs").found == SENTENCES["a_driver_that_does_not_name_its"]


@pytest.mark.parametrize(
    ("topology", "says"),
    [
        ((("X", "NV4", "SYS"), ("NV4", "X", "SYS"), ("SYS", "SYS", "X")), "SYS: 2 pairs, NV4: 1 pair"),
        ((("X",),), None),
    ],
)
def test_pairs_are_counted_by_their_links(
    healthy: Machine, monkeypatch: pytest.MonkeyPatch, topology: tuple[tuple[str, ...], ...], says: str | None
) -> None:
    """The most frequent first; one GPU has none."""
    monkeypatch.setattr(doctor, "snapshot", lambda _notify=None: replace(healthy, topology=topology))
    assert [finding.found for finding in examine() if finding.name == "GPU links"] == ([says] if says else [])


def test_a_gpu_with_fewer_links_than_others_is_named(healthy: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one of another kind, nor one whose driver does not report them."""
    most, fewer, other, unknown = (replace(healthy.gpus[0], index=index) for index in range(4))
    gpus = (
        replace(most, num_nvlinks=18),
        replace(fewer, num_nvlinks=16),
        replace(other, name="NVIDIA A100", num_nvlinks=12),
        replace(unknown, num_nvlinks=None),
    )
    monkeypatch.setattr(doctor, "snapshot", lambda _notify=None: replace(healthy, gpus=gpus))
    short = found("GPU 1")
    assert (short.state, short.found) == ("warning", "16 NVLinks of 18")
    assert "nvidia-smi nvlink --status" in short.remedy
    assert not [finding for finding in examine() if finding.name in {"GPU 0", "GPU 2", "GPU 3"}]


@pytest.mark.usefixtures("healthy")
def test_little_room_little_locked_memory_and_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with its figure."""
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 0.0, 0.0))
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(2**40, 0, 2**29))
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (8 * 2**20, 8 * 2**20))
    for name, figure in (
        ("disk", "512 MiB free"),
        ("shared memory", "512 MiB free"),
        ("locked memory", "8 MiB"),
        ("load", "99.00 over the last minute"),
    ):
        assert found(name).state == "warning"
        assert figure in found(name).found
        assert found(name).remedy


@pytest.mark.parametrize(("state", "shown"), [(1, "not started"), (2, "in progress"), (3, None), (0, None)])
def test_the_state_of_the_fabric(state: int, shown: str | None, fake_nvml: Tell, fresh_nvml: None) -> None:
    """Until the fabric manager is done no CUDA program starts; GPUs without a fabric have no state."""
    fake_nvml(devices=1, fabric=state)
    (gpu,) = snapshot().gpus
    assert (gpu.fabric not in {None, "completed"}) == (shown is not None)
    lines = [finding for finding in examine() if "fabric" in finding.found]
    assert [(line.name, line.state, line.found) for line in lines] == (
        [("GPU 0", "warning", f"its NVSwitch fabric is {shown}")] if shown else []
    )
    assert all("nvidia-fabricmanager" in line.remedy and "error 802" in line.remedy for line in lines)


def test_a_driver_or_binding_that_knows_no_fabric(
    fake_nvml: Tell, fresh_nvml: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state is unknown."""
    fake_nvml(devices=1, fabric=2, fail="nvmlDeviceGetGpuFabricInfo:13")
    assert [gpu.fabric for gpu in snapshot().gpus] == [None]
    fake_nvml(devices=1, fabric=2, fail="")
    monkeypatch.delattr(pynvml, "nvmlDeviceGetGpuFabricInfo")
    assert [gpu.fabric for gpu in snapshot().gpus] == [None]
    monkeypatch.delattr(pynvml, "c_nvmlGpuFabricInfo_t")
    assert [gpu.fabric for gpu in snapshot().gpus] == [None]


def test_errors_of_hardware_in_the_kernels_log(healthy: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once; an XID that a program causes, as 31, is none."""
    xids = [Xid(sequence=n, pci_bus_id="0000:19:00", number=number) for n, number in enumerate((31, 79, 79))]
    switch = Xid(sequence=9, pci_bus_id="0000:c1:00.0", number=20034, of_switch=True)
    monkeypatch.setattr(doctor, "read_xids", lambda: (*xids, switch))
    lines = [finding.found for finding in examine() if finding.name == "kernel log"]
    assert lines == ["XID 79, PCI 0000:19:00", SENTENCES["errors_of_hardware_in_the_kernels"]]
