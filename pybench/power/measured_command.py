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
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


@dataclass
class _Zone:
    name: str
    energy: Path
    range_uj: int
    last_uj: int
    sum_uj: int = 0


class PackageCounters:
    """Joules of every CPU package of this machine; ``reason`` explains missing counters.

    Counters wrap after about 262 kJ, a quarter of an hour at full load: :meth:`update` must be called before that.
    """

    def __init__(self, root: Path = POWERCAP) -> None:
        self.reason: str | None = None
        self._zones: list[_Zone] = []
        try:
            zones = []
            for folder in sorted(path for path in root.glob("intel-rapl:*") if path.name.count(":") == 1):
                name = (folder / "name").read_text(encoding="ascii").strip()
                if name.startswith("package"):  # the zone "psys" of some platforms includes the packages
                    range_uj = int((folder / "max_energy_range_uj").read_text(encoding="ascii"))
                    energy = folder / "energy_uj"
                    zones.append(_Zone(name, energy, range_uj, int(energy.read_text(encoding="ascii"))))
            self._zones = zones
            if not zones:
                self.reason = "no RAPL zone: the kernel or the virtual machine does not offer powercap"
        except PermissionError as error:
            self.reason = f"{error.filename}: not readable; make it so with chmod, or run as root"
        except (OSError, ValueError) as error:
            self.reason = f"RAPL: {error}"

    def update(self) -> dict[str, float]:
        """Joules of each package so far."""
        for zone in self._zones:
            now_uj = int(zone.energy.read_text(encoding="ascii"))
            zone.sum_uj += (now_uj - zone.last_uj) % (zone.range_uj + 1)
            zone.last_uj = now_uj
        return {zone.name: zone.sum_uj * _MICRO for zone in self._zones}


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
    packages = PackageCounters()
    with PowerRecorder(uuids) as sampler:
        time.sleep(LEAD_S)
        sampler.anchor()
        start_ns = time.monotonic_ns()
        before_j = packages.update()
        code = _run(argv, packages)
        end_ns = time.monotonic_ns()
        sampler.anchor()
        after_j = packages.update()
        settle(end_ns)
        trace = sampler.stop()
    return CommandPower(
        argv=tuple(argv),
        exit_code=code,
        energy=attempt_energy(trace, start_ns, end_ns, None if period_s is None else LoadPeriods((period_s,))),
        trace=trace,
        package_j={name: after_j[name] - before_j[name] for name in before_j},
        package_reason=packages.reason,
    )


def _run(argv: Sequence[str], packages: PackageCounters) -> int:
    """The command's exit code. Signals that this process gets and does not ignore are the command's.

    The terminal itself sends the keyboard's.
    """
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def forward(number: int, _frame: object) -> None:
        if number in _KEYBOARD and _by_terminal():
            return
        if process is None:
            early.append(number)
        else:
            process.send_signal(number)

    former: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        # Signals ignored by nohup (SIGHUP) or by a shell's & (SIGINT) stay ignored.
        taken = [number for number in (*_OUTSIDE, *_KEYBOARD) if signal.getsignal(number) is not signal.SIG_IGN]
        former = {number: signal.signal(number, forward) for number in taken}
    try:
        try:
            process = subprocess.Popen(argv)
        except OSError as error:
            raise UsageError(f"power record: {argv[0]}: {error.strerror}") from error
        for number in early:
            process.send_signal(number)
        while process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_PACKAGE_PERIOD_S)
            packages.update()
        return process.returncode if process.returncode >= 0 else _SIGNAL_BASE - process.returncode
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


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
