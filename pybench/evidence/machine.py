"""A run's machine held against the GPUs that it lists, host by host."""

from __future__ import annotations

from collections.abc import Iterator

from pybench.core.fabric import fabric_of
from pybench.core.fingerprint import fingerprint, run_fields
from pybench.core.gpu_models import machine_kind
from pybench.evidence.figures import differences
from pybench.evidence.values import Discrepancy, DiscrepancyState
from pybench.model.machine import Machine
from pybench.model.manifest import MANIFEST_FILE, Manifest

_KIND = "kind"


def check_machine(manifest: Manifest, *, same_version: bool) -> Iterator[Discrepancy]:
    """The fingerprint is that of the machine, and what is derived of its GPUs follows from them, on every host.

    Kind and fabric choose rows of expected tables. Another version may know other kinds by a GPU's name.
    """
    found = fingerprint(run_fields(manifest.machine, manifest.machines))
    if found != manifest.fingerprint:
        text = f"the machine's fingerprint is {found}, {manifest.fingerprint} is claimed: the machine was edited"
        yield Discrepancy(place=MANIFEST_FILE, text=text)
    if manifest.device != manifest.machine.devices.kind:
        text = f"device: {manifest.device!r} is claimed, {manifest.machine.devices.kind!r} follows from the machine"
        yield Discrepancy(place=MANIFEST_FILE, text=text)
    if manifest.machines and manifest.machines[0].machine != manifest.machine:
        text = f"host {manifest.machines[0].name} leads the run, whose machine is another one"
        yield Discrepancy(place=MANIFEST_FILE, text=text)
    machines = {"machine": manifest.machine}
    machines |= {f"machine of host {host.name}": host.machine for host in manifest.machines[1:]}
    for name, machine in machines.items():
        for place, difference in differences(_claimed(machine), _of_gpus(machine), name):
            text = f"{place}: {difference} from the GPUs that are listed"
            state: DiscrepancyState = "does not hold"
            if not same_version and place == f"{name}.{_KIND}":
                text, state = f"{text}; check with pybench {manifest.pybench_version}", "not checked"
            yield Discrepancy(place=MANIFEST_FILE, text=text, state=state)


def _claimed(machine: Machine) -> dict[str, object]:
    return {
        _KIND: machine.kind,
        "fabric": machine.fabric,
        "gpu_count": machine.gpu_count,
        "gpu_names": [*machine.gpu_names],
        "gpu_vram_gib": [*machine.gpu_vram_gib],
    }


def _of_gpus(machine: Machine) -> dict[str, object]:
    names = [gpu.name for gpu in machine.gpus]
    return {
        _KIND: machine_kind(names),
        "fabric": fabric_of(machine.topology),
        "gpu_count": len(names),
        "gpu_names": names,
        "gpu_vram_gib": [gpu.vram_gib for gpu in machine.gpus],
    }
