"""Counts of trouble around an attempt, from the fake driver, and XIDs from a kernel log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pybench.machine import health_watch
from pybench.machine.health_watch import HealthWatch, parse_xid, read_xids
from pybench.model.record import GpuCounters, PcieLink, Xid

Tell = Callable[..., None]
UUID = "GPU-00000000-fake-4000-8000-000000000000"
KMSG = "6,1234,5678901,-;NVRM: Xid (PCI:0000:19:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


@pytest.fixture(autouse=True)
def no_kernel_log(fresh_nvml: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test depends on this machine's own log."""
    monkeypatch.setattr(health_watch, "read_xids", lambda: None)


def test_a_count_that_rises_meanwhile_shows(fake_nvml: Tell) -> None:
    """Before and after, and the link."""
    fake_nvml(devices=1, ecc_corrected=7)
    with HealthWatch([UUID]) as watch:
        fake_nvml(ecc_corrected=9, ecc_uncorrected=1, remapped_rows=2, remap_pending=1)
    health = watch.health()
    assert health is not None
    assert health.before == (
        GpuCounters(
            uuid=UUID,
            ecc_corrected=7,
            ecc_uncorrected=0,
            rows_remapped_corrected=0,
            rows_remapped_uncorrected=0,
            remap_pending=False,
            remap_failed=False,
        ),
    )
    (after,) = health.after
    assert (after.ecc_corrected, after.ecc_uncorrected) == (9, 1)
    assert (after.rows_remapped_uncorrected, after.remap_pending, after.remap_failed) == (2, True, False)
    assert health.links == (PcieLink(uuid=UUID, generation=5, generation_max=5, width=16, width_max=16),)
    assert health.xids is None


def test_a_link_is_the_best_that_was_seen() -> None:
    """An idle link slows down; that is no fault."""
    idle = PcieLink(uuid=UUID, generation=1, width=16)
    awake = PcieLink(uuid=UUID, generation=5, width=16)
    assert health_watch._better(None, idle) is idle
    assert health_watch._better(idle, awake) is awake
    assert health_watch._better(awake, idle) is awake


def test_what_the_driver_does_not_say_is_unknown(fake_nvml: Tell) -> None:
    """A GPU without ECC."""
    fake_nvml(
        devices=1, fail="nvmlDeviceGetTotalEccErrors:3,nvmlDeviceGetRemappedRows:3,nvmlDeviceGetMaxPcieLinkWidth:3"
    )
    with HealthWatch([UUID]) as watch:
        pass
    health = watch.health()
    assert health is not None
    assert health.before == health.after == (GpuCounters(uuid=UUID),)
    assert health.links[0].width_max is None


def test_without_a_driver_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing breaks."""
    monkeypatch.setenv("PYBENCH_NVML_LIBRARY", "/nowhere/libnvidia-ml.so.1")
    with HealthWatch([UUID]) as watch:
        pass
    assert watch.health() is None


def test_a_lost_gpu_is_unknown(fake_nvml: Tell) -> None:
    """NVML has no handle for it."""
    fake_nvml(devices=1, fail="nvmlDeviceGetHandleByUUID:15")
    with HealthWatch([UUID]) as watch:
        pass
    assert watch.health() is None


def test_a_lost_gpu_leaves_the_others_watched(fake_nvml: Tell) -> None:
    """Of it alone nothing is known."""
    other = "GPU-00010001-fake-4000-8000-000000000001"
    fake_nvml(devices=2, fail="nvmlDeviceGetHandleByUUID:15:1", ecc_corrected=7)
    with HealthWatch([UUID, other]) as watch:
        pass
    health = watch.health()
    assert health is not None
    assert [gpu.ecc_corrected for gpu in health.before] == [gpu.ecc_corrected for gpu in health.after] == [7, None]
    assert health.before[1] == health.after[1] == GpuCounters(uuid=other)
    assert [link.uuid for link in health.links] == [UUID]


def test_a_driver_that_hangs_is_left(fake_nvml: Tell) -> None:
    """After a moment; the attempt goes on with the known states."""
    fake_nvml(devices=1, hang="nvmlDeviceGetRemappedRows:3000@call=2-2")
    with HealthWatch([UUID], patience_s=0.01) as watch:
        watch._ready.wait()
    health = watch.health()
    assert health is not None
    assert health.after == ()
    watch._thread.join()  # a driver that is loaded by two at once is no part of this


def test_only_new_xids_count(fake_nvml: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier lines of the log belong to an earlier load."""
    fake_nvml(devices=1)
    old, new = (Xid(sequence=n, pci_bus_id="0000:19:00", number=79) for n in (1, 2))
    answers = iter([(old,), (old, new)])
    monkeypatch.setattr(health_watch, "read_xids", lambda: next(answers))
    with HealthWatch([UUID]) as watch:
        pass
    health = watch.health()
    assert health is not None
    assert health.xids == (new,)


def test_an_xid_of_the_kernel_log(tmp_path: Path) -> None:
    """Other lines are not; a log that is not there is unknown."""
    log = tmp_path / "kmsg"
    log.write_text(f"6,1,2,-;usb 1-1: new device\n{KMSG}\n SUBSYSTEM=pci\n")
    assert read_xids(str(log)) == (Xid(sequence=1234, pci_bus_id="0000:19:00", number=79),)
    assert read_xids(str(tmp_path / "none")) is None
    assert parse_xid("6,1,2,-;NVRM: loading") is None


@pytest.mark.parametrize("place", ["PCI:0000:19:00 GPU-I:05", "PCI:0000:19:00 GPU-I:05 GPU-CI:00"])
def test_an_xid_of_an_instance_is_its_boards(place: str) -> None:
    """A GPU with MIG on names the instance beside the slot (kernel_rc.c of NVIDIA's open kernel modules)."""
    line = f"6,1234,5678901,-;NVRM: Xid ({place}): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No"
    assert parse_xid(line) == Xid(sequence=1234, pci_bus_id="0000:19:00", number=94)


def test_errors_of_switches_and_of_lost_gpus(tmp_path: Path) -> None:
    """A fatal SXid, and a GPU that is off the bus without an XID, which XID 79 stands for; no other SXid."""
    (tmp_path / "log").write_text(
        "3,1,5,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n"
        "3,2,5,-;nvidia-nvswitch1: SXid (PCI:0000:84:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error\n"
        "3,3,5,-;NVRM: GPU 0000:19:00.0: GPU has fallen off the bus.\n"
        "3,4,5,-;NVRM: GPU at PCI:0000:1a:00: GPU-5 has fallen off the bus\n"
    )
    found = read_xids(str(tmp_path / "log")) or ()
    assert [(xid.sequence, str(xid), xid.pci_bus_id) for xid in found] == [
        (1, "SXid 20034 of an NVSwitch", "0000:c1:00.0"),
        (3, "XID 79", "0000:19:00"),
        (4, "XID 79", "0000:1a:00"),
    ]
