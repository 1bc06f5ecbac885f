"""Energy of CPU packages, by RAPL through powercap: a scope of its own, never added to the GPUs'.

RAPL counts in the processor: cores, caches and memory controller of one package. DRAM is its own zone and left out.
Source: Documentation/power/powercap of the Linux kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

POWERCAP = Path("/sys/class/powercap")
SCOPE = "cpu_package"
_MICRO = 1e-6


@dataclass(frozen=True)
class _Zone:
    name: str
    energy: Path
    range_uj: int

    def read_uj(self) -> int:
        return int(self.energy.read_text(encoding="ascii"))


class PackageCounters:
    """Joules of every package since :meth:`open`. :meth:`update` must be called before a counter wraps twice.

    Counters wrap after about 262 kJ: a quarter of an hour at full load.
    """

    def __init__(self, zones: tuple[_Zone, ...]) -> None:
        self._zones = zones
        self._last_uj = {zone: zone.read_uj() for zone in zones}
        self._sum_uj = dict.fromkeys(zones, 0)

    @classmethod
    def open(cls, root: Path = POWERCAP) -> Self | str:
        """The counters of this machine, or the reason why there are none."""
        folders = sorted(path for path in root.glob("intel-rapl:*") if path.name.count(":") == 1)
        try:
            # The zone "psys" of some platforms includes the packages.
            names = {folder: (folder / "name").read_text(encoding="ascii").strip() for folder in folders}
            packages = {folder: name for folder, name in names.items() if name.startswith("package")}
            if not packages:
                return "no RAPL zone: the kernel or the virtual machine does not offer powercap"
            return cls(tuple(_zone(name, folder) for folder, name in packages.items()))
        except PermissionError as error:
            return f"{error.filename}: not readable; make it so with chmod, or run as root"
        except (OSError, ValueError) as error:
            return f"RAPL: {error}"

    def update(self) -> dict[str, float]:
        """Joules of each package so far."""
        for zone in self._zones:
            now_uj = zone.read_uj()
            self._sum_uj[zone] += (now_uj - self._last_uj[zone]) % (zone.range_uj + 1)
            self._last_uj[zone] = now_uj
        return {zone.name: uj * _MICRO for zone, uj in self._sum_uj.items()}


def _zone(name: str, folder: Path) -> _Zone:
    return _Zone(name, folder / "energy_uj", int((folder / "max_energy_range_uj").read_text(encoding="ascii")))
