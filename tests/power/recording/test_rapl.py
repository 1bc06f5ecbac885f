"""CPU package energy from a powercap tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybench.power.measured_command import PackageCounters
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("power.recording.rapl")


def zone(root: Path, number: str, name: str, energy_uj: int, range_uj: int = 1_000_000) -> Path:
    folder = root / f"intel-rapl:{number}"
    folder.mkdir()
    (folder / "name").write_text(f"{name}\n")
    (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    return folder / "energy_uj"


def test_packages_are_counted_and_neither_their_parts_nor_the_platform(tmp_path: Path) -> None:
    first = zone(tmp_path, "0", "package-0", 999_000)
    second = zone(tmp_path, "1", "package-1", 10_000)
    zone(tmp_path, "0:0", "dram", 0)
    zone(tmp_path, "2", "psys", 50_000)
    counters = PackageCounters(tmp_path)
    assert counters.reason is None
    first.write_text("2000")
    second.write_text("30000")
    # The first wrapped: 999 000 to 1 000 000 and from 0 on.
    assert counters.update() == {"package-0": pytest.approx(3.001e-3), "package-1": pytest.approx(20e-3)}
    first.write_text("3000")
    assert counters.update()["package-0"] == pytest.approx(4.001e-3)


def test_no_zone_is_a_reason(tmp_path: Path) -> None:
    assert PackageCounters(tmp_path).reason == SENTENCES["no_zone_is_a_reason"]


def test_a_broken_zone_is_a_reason(tmp_path: Path) -> None:
    zone(tmp_path, "0", "package-0", 0).write_text("broken")
    assert str(PackageCounters(tmp_path).reason).startswith("RAPL: invalid literal")


def test_an_unreadable_counter_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    energy = zone(tmp_path, "0", "package-0", 0)
    read = Path.read_text

    def guarded(path: Path, encoding: str | None = None, errors: str | None = None) -> str:
        if path == energy:
            raise PermissionError(13, "Permission denied", str(path))
        return read(path, encoding, errors)

    monkeypatch.setattr(Path, "read_text", guarded)
    reason = f"{energy}: not readable; make it so with chmod, or run as root"
    assert PackageCounters(tmp_path).reason == reason
