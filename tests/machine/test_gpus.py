"""The GPU inventory against the fake driver."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest

from pybench.machine.gpus import find_gpus
from pybench.model.machine import GpuInfo
from tests.golden_sentences import sentences_of
from tests.threads import ended_threads

SENTENCES = sentences_of("machine.gpus")

Tell = Callable[..., None]
UUIDS = tuple(f"GPU-0000000{i}-fake-4000-8000-00000000000{i}" for i in range(3))


pytestmark = pytest.mark.usefixtures("fresh_nvml")


def test_two_gpus(fake_nvml: Tell) -> None:
    fake_nvml(devices=2, driver="580.00.fake")
    inventory = find_gpus()
    assert inventory.reason is None
    assert (inventory.driver, inventory.cuda_driver) == ("580.00.fake", "13.0")
    assert inventory.topology == (("X", "NV18"), ("NV18", "X"))
    assert [gpu.index for gpu in inventory.gpus] == [0, 1]
    assert inventory.gpus[1] == GpuInfo(
        index=1,
        uuid=UUIDS[1],
        name="NVIDIA H200",
        vram_gib=139.7,
        pci_bus_id="00000000:1A:00.0",
        compute_capability="9.0",
        power_limit_w=650.0,
        power_limit_default_w=700.0,
        sm_clock_max_hz=1.98e9,
        memory_clock_max_hz=3.201e9,
        ecc_enabled=True,
        mig_enabled=False,
        persistence_enabled=True,
        pcie_generation=5,
        pcie_width=16,
        num_nvlinks=18,
    )


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("0", [0]),
        ("2,0", [2, 0]),
        (UUIDS[1], [1]),
        ("GPU-00000002, 1", [2, 1]),
        ("1,7,0", [1]),  # CUDA stops at the first entry that it does not know
        ("GPU-,0", []),  # a beginning that fits several names none
        ("0,1,0", []),  # CUDA shows none where one is listed twice
        (f"1,{UUIDS[1]}", []),
        ("1,7,1", [1]),
        ("MIG-00000000-fake-5000-8000-000000000000", []),
        ("", []),
        ("-1", []),
    ],
)
def test_cuda_visible_devices(
    fake_nvml: Tell, monkeypatch: pytest.MonkeyPatch, setting: str, expected: list[int]
) -> None:
    fake_nvml(devices=3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    inventory = find_gpus()
    assert [gpu.index for gpu in inventory.gpus] == expected
    assert len(inventory.topology) == len(expected)
    remedy = f", by {setting}: list whole GPUs by index or UUID, each once" if setting else ""
    assert inventory.reason == (None if expected else f"CUDA_VISIBLE_DEVICES hides every GPU{remedy}")


def test_unanswered_questions_are_unknown(fake_nvml: Tell) -> None:
    questions = ("MemoryInfo", "EccMode", "NvLinkState", "PciInfo_v3", "EnforcedPowerLimit", "MaxClockInfo")
    fake_nvml(fail=",".join(f"nvmlDeviceGet{question}:3" for question in questions))
    gpu = find_gpus().gpus[0]
    assert (gpu.vram_gib, gpu.ecc_enabled, gpu.num_nvlinks, gpu.pci_bus_id) == (None, None, None, None)
    assert (gpu.power_limit_w, gpu.sm_clock_max_hz, gpu.power_limit_default_w) == (None, None, 700.0)


def test_without_nvlink_the_topology_names_the_pcie_way(fake_nvml: Tell) -> None:
    fake_nvml(fail="nvmlDeviceGetNvLinkState:3")
    assert find_gpus().topology == (("X", "SYS"), ("SYS", "X"))


def test_links_that_end_at_another_gpu_join_no_pair(fake_nvml: Tell) -> None:
    """Without a switch: 12 of 18 links end at the other GPU of a pair, 3 at each of the other two."""
    fake_nvml(devices=4, pair_links=12)
    assert find_gpus().topology == (
        ("X", "NV12", "NV3", "NV3"),
        ("NV12", "X", "NV3", "NV3"),
        ("NV3", "NV3", "X", "NV12"),
        ("NV3", "NV3", "NV12", "X"),
    )
    assert find_gpus().gpus[0].num_nvlinks == 18
    fake_nvml(devices=2, pair_links=12, fail="nvmlDeviceGetNvLinkRemotePciInfo_v2:3")
    assert find_gpus().topology == (("X", "NV18"), ("NV18", "X"))


def test_unknown_topology(fake_nvml: Tell) -> None:
    fake_nvml(fail="nvmlDeviceGetNvLinkState:3,nvmlDeviceGetTopologyCommonAncestor:3")
    assert find_gpus().topology == (("X", "?"), ("?", "X"))


def test_no_gpu(fake_nvml: Tell) -> None:
    fake_nvml(devices=0)
    assert find_gpus().reason == "the driver lists no GPU"


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYBENCH_NVML_LIBRARY", "/nowhere/libnvidia-ml.so.1")
    inventory = find_gpus()
    assert (inventory.gpus, inventory.driver, inventory.topology) == ((), None, ())
    assert inventory.reason == SENTENCES["no_driver"]


def test_driver_not_loaded(fake_nvml: Tell) -> None:
    fake_nvml(fail="nvmlInit:9")
    assert find_gpus().reason == SENTENCES["driver_not_loaded"]


@pytest.mark.parametrize("call", ["nvmlDeviceGetUUID", "nvmlDeviceGetName"])
def test_a_lost_gpu_is_left_out_and_told(fake_nvml: Tell, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """The others keep their numbers, their links, and their place in CUDA_VISIBLE_DEVICES."""
    fake_nvml(devices=3, fail=f"{call}:15:1")
    inventory = find_gpus()
    assert [gpu.index for gpu in inventory.gpus] == [0, 2]
    assert inventory.topology == (("X", "NV18"), ("NV18", "X"))
    assert (inventory.reason, inventory.faults) == (None, (SENTENCES["a_lost_gpu_is_left_out_and_told"],))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    assert [gpu.index for gpu in find_gpus().gpus] == [2]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    hidden = "CUDA_VISIBLE_DEVICES hides every GPU, by 1: list whole GPUs by index or UUID, each once"
    assert find_gpus().reason == f"{hidden}; GPU 1 can't be queried: GPU is lost"


def test_all_gpus_lost(fake_nvml: Tell, fake_library: Path) -> None:
    fake_nvml(fail="nvmlDeviceGetUUID:15")
    driver = ctypes.CDLL(str(fake_library))
    sessions = driver.fake_nvml_sessions()
    assert find_gpus().reason == SENTENCES["all_gpus_lost"]
    assert driver.fake_nvml_sessions() <= sessions  # others may end meanwhile; this one was closed


@pytest.mark.parametrize("which", range(50))
def test_calls_that_fail_in_passing_hide_no_gpu(fake_nvml: Tell, which: int) -> None:
    """One of each 50 calls, whichever; and every second ``nvmlInit``."""
    fake_nvml(devices=3)
    whole = find_gpus()
    fake_nvml(devices=3, fail=f"all:999@every=50-{which},nvmlInit:999@every=2-{which}", driver=whole.driver)
    assert find_gpus() == whole


def test_a_driver_that_hangs_while_gpus_are_listed_is_given_up(fake_nvml: Tell) -> None:
    fake_nvml(hang="nvmlDeviceGetCount_v2:3000")
    with ended_threads():
        found = find_gpus(limit_s=0.2)
        assert found.gpus == ()
        assert found.reason == SENTENCES["a_driver_that_hangs_while_gpus_are"]
    assert len(find_gpus().gpus) == 2
