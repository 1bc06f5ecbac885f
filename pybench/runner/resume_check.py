"""Whether a run may go on here: on the machine, with the software and the variables that it began with."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from pybench.compute.fingerprint import differences, machine_fields
from pybench.model.errors import MachineError, UsageError
from pybench.model.machine import Machine
from pybench.model.manifest import Manifest
from pybench.model.plan_options import PlanOptions
from pybench.model.software import Software


def check_options(path: Path, began: PlanOptions, given: PlanOptions) -> None:
    """Raise ``UsageError`` where an option that is given differs from what the run began with."""
    changed = [
        field.name
        for field in fields(PlanOptions)
        if getattr(given, field.name) not in (None, (), getattr(began, field.name))
    ]
    if changed:
        with_profile = [f"--profile {began.profile}"] if began.profile is not None else []
        first = " ".join((*with_profile, *began.words())) or "no options of the plan"
        raise UsageError(
            f"{path}: --resume continues the run's plan, which began with {first}; leave the others out "
            f"({', '.join(_OPTION_OF.get(name, f'--{name}') for name in changed)}), or start a new run"
        )


_OPTION_OF = {"keep": "-k", "max_gpus": "--max-gpus", "settings": "--set", "time_limit_s": "--time-limit"}


def check_machine(path: Path, manifest: Manifest, machine: Machine) -> None:
    """Raise ``MachineError`` on another machine, or under another set of CPUs."""
    began = manifest.machine
    if began.cpus and began.cpus != machine.cpus:
        raise MachineError(
            f"{path}: began on CPUs {began.cpu_ranges}, would go on on CPUs {machine.cpu_ranges}; "
            f"resume it under the first (taskset -c {began.cpu_ranges} pybench run --resume ...), or start a new run"
        )
    if changes := differences(machine_fields(began), machine_fields(machine)):
        raise MachineError(f"{path}: this is not the machine the run began on ({'; '.join(changes)}); start a new run")


def check_software(path: Path, manifest: Manifest, software: Software | None, environment: dict[str, str]) -> None:
    """Raise ``MachineError`` with another Python, other packages or other tuning variables, naming both versions."""
    if manifest.software is not None and software is not None:
        before = {"python": manifest.software.python, **manifest.software.packages}
        if changes := differences(before, {"python": software.python, **software.packages}):
            raise MachineError(
                f"{path}: the workers' Python or packages have changed since the run began ({'; '.join(changes)}); "
                "resume with the first ones (--python), or start a new run"
            )
    if changes := differences(manifest.environment, environment):
        raise MachineError(
            f"{path}: variables that tune workers have changed since the run began ({'; '.join(changes)}); "
            "set them as they were, or start a new run"
        )
