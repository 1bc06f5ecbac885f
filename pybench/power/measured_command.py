"""A command with the power sampler around it, and joules of CPU packages by RAPL.

RAPL through powercap counts in the processor: cores, caches and memory controller of one package. Its joules are never
added to the GPUs'. DRAM is a separate zone and left out. Source: Documentation/power/powercap of the Linux kernel.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pybench.model.errors import UsageError
from pybench.model.record import Energy
from pybench.power.estimate import attempt_energy
from pybench.power.in_step import LoadPeriods
from pybench.power.recorder import PowerRecorder
from pybench.power.sampler import settle
from pybench.power.trace import PowerTrace

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
            zones = []
            for folder, name in packages.items():
                range_uj = int((folder / "max_energy_range_uj").read_text(encoding="ascii"))
                zones.append(_Zone(name, folder / "energy_uj", range_uj))
            return cls(tuple(zones))
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


# Before the command: enough publications to place the counter's grid and lag. The driver's series begins 2.4 s earlier.
LEAD_S = 0.5
# Often enough that no package counter wraps twice.
_PACKAGE_PERIOD_S = 10.0
_SIGNAL_BASE = 128
_OUTSIDE = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_KEYBOARD = (signal.SIGINT, signal.SIGQUIT)


@dataclass(frozen=True)
class CommandPower:
    """Energy of a command. ``exit_code`` is the command's, 128 + N if signal N ended it.

    ``package_j`` is joules of each CPU package, empty for ``package_reason``.
    """

    argv: tuple[str, ...]
    exit_code: int
    energy: Energy
    trace: PowerTrace
    package_j: dict[str, float]
    package_reason: str | None


def record_command(argv: Sequence[str], uuids: Sequence[str], period_s: float | None = None) -> CommandPower:
    """Run ``argv`` to its end while sampling GPUs; ``period_s`` is the load's own period, if it has one.

    Raises ``UsageError`` when it can't be started, ``MachineError`` when power can't be sampled.
    """
    packages = PackageCounters.open()
    with PowerRecorder(uuids) as sampler:
        time.sleep(LEAD_S)
        sampler.anchor()
        start_ns = time.monotonic_ns()
        before_j = {} if isinstance(packages, str) else packages.update()
        code = _run(argv, packages)
        end_ns = time.monotonic_ns()
        sampler.anchor()
        after_j = {} if isinstance(packages, str) else packages.update()
        settle(end_ns)
        trace = sampler.stop()
    return CommandPower(
        argv=tuple(argv),
        exit_code=code,
        energy=attempt_energy(trace, start_ns, end_ns, LoadPeriods.of_period(period_s)),
        trace=trace,
        package_j={name: after_j[name] - before_j[name] for name in before_j},
        package_reason=packages if isinstance(packages, str) else None,
    )


def _run(argv: Sequence[str], packages: PackageCounters | str) -> int:
    """The command's exit code. A signal to pybench is the command's, and its end is waited for."""
    with _Forwarding() as forwarding:
        try:
            process = subprocess.Popen(argv)
        except OSError as error:
            raise UsageError(f"power record: {argv[0]}: {error.strerror}") from error
        forwarding.to(process)
        while True:
            try:
                code = process.wait(_PACKAGE_PERIOD_S)
            except subprocess.TimeoutExpired:
                if not isinstance(packages, str):
                    packages.update()
            else:
                return code if code >= 0 else _SIGNAL_BASE - code


class _Forwarding:
    """Gives a process the signals that this one gets and does not ignore; the terminal itself sends the keyboard's."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        self._former: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            # Signals ignored by nohup (SIGHUP) or by a shell's & (SIGINT) stay ignored.
            taken = [number for number in (*_OUTSIDE, *_KEYBOARD) if signal.getsignal(number) is not signal.SIG_IGN]
            self._former = {number: signal.signal(number, self._take) for number in taken}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def to(self, process: subprocess.Popen[bytes]) -> None:
        """Signals that came before are given at once."""
        self._process = process
        for number in self._early:
            process.send_signal(number)

    def _take(self, number: int, _frame: object) -> None:
        if number in _KEYBOARD and _by_terminal():
            return
        if self._process is None:
            self._early.append(number)
        else:
            self._process.send_signal(number)


def _by_terminal() -> bool:
    """Whether this process and its command are what the terminal's keyboard signals."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
