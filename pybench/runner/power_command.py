"""A command with the power sampler around it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pybench.compute.energy import LoadPeriods, attempt_energy
from pybench.machine.power_recorder import PowerRecorder
from pybench.machine.power_sampler import settle
from pybench.machine.rapl import PackageCounters
from pybench.model.errors import UsageError
from pybench.model.record import Energy
from pybench.model.trace import PowerTrace

# Before the command: enough publications to place the counter's grid and lag. The driver's series begins 2.4 s earlier.
LEAD_S = 0.5
# Often enough that no package counter wraps twice.
_PACKAGE_PERIOD_S = 10.0
_SIGNAL_BASE = 128


@dataclass(frozen=True)
class CommandPower:
    """What a command used. ``exit_code`` is its own, 128 + N when signal N ended it.

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
    """The command's exit code. Ctrl-C reaches the command by the terminal, and its answer is waited for."""
    try:
        process = subprocess.Popen(argv)
    except OSError as error:
        raise UsageError(f"power record: {argv[0]}: {error.strerror}") from error
    while True:
        try:
            code = process.wait(_PACKAGE_PERIOD_S)
        except subprocess.TimeoutExpired:
            if not isinstance(packages, str):
                packages.update()
        except KeyboardInterrupt:
            continue
        else:
            return code if code >= 0 else _SIGNAL_BASE - code
