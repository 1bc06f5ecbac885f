"""What this machine has and lacks for containers."""

from __future__ import annotations

from collections.abc import Iterator

from pybench.model.container import EngineFacts, ImageLock
from pybench.model.errors import FileError, MachineError
from pybench.model.machine import DoctorFinding, Machine
from pybench.run.engines.base import find_container_engines
from pybench.run.engines.oci.confinement import CDI_COMMAND, has_cdi, toolkit_version
from pybench.run.engines.oci.engine import OciEngine
from pybench.run.engines.oci.images import images_here
from pybench.run.images.lock import default_lock, read_lock, this_platform

# CVE-2025-23266: an image could run code as root on the host through the toolkit's hook.
_SAFE_TOOLKIT = (1, 17, 8)


def examine_containers(machine: Machine) -> tuple[DoctorFinding, ...]:
    """Engines, GPU integration, locked images. Nothing here is ``missing``: workers also run without containers."""
    engines = find_container_engines()
    usable = [(engine, facts) for engine, facts in engines if facts.reason is None]
    about = tuple(_engine(facts) for _, facts in engines)
    try:
        lock = read_lock(default_lock())
    except FileError as error:
        return (*about, DoctorFinding.warning("image lock", str(error), "repair it, or install pybench again"))
    stores = [facts for engine, facts in usable if isinstance(engine, OciEngine)]
    return (
        *about,
        *(finding for engine, facts in usable for finding in engine.findings(facts)),
        *(_gpu_integration() if machine.gpus and usable else ()),
        *(_drivers(lock, machine) if machine.gpus else ()),
        *([_images(lock, stores)] if stores else []),
    )


def _engine(facts: EngineFacts) -> DoctorFinding:
    name = f"engine {facts.name}"
    if not facts.installed:
        return DoctorFinding.ok(name, "not installed")
    if facts.reason:
        remedy = "start or repair it; without an engine workers run in this machine's Python"
        return DoctorFinding.warning(name, facts.reason, remedy)
    parts = (facts.version or "unknown version", facts.runtime, "rootless" if facts.rootless else None)
    return DoctorFinding.ok(name, ", ".join(part for part in parts if part))


def _gpu_integration() -> Iterator[DoctorFinding]:
    version, safe = toolkit_version(), ".".join(map(str, _SAFE_TOOLKIT))
    name, installed = "NVIDIA toolkit", ".".join(map(str, version or ()))
    if version is None:
        yield DoctorFinding.warning(name, "not installed", f"install the NVIDIA Container Toolkit, {safe} or newer")
    elif version < _SAFE_TOOLKIT:
        remedy = f"update to {safe} or newer: older ones let an image run code as root here (CVE-2025-23266)"
        yield DoctorFinding.warning(name, installed, remedy)
    else:
        yield DoctorFinding.ok(name, installed)
    lacks = DoctorFinding.warning("CDI", "no specification names the GPUs by UUID", CDI_COMMAND)
    yield DoctorFinding.ok("CDI", "names the GPUs by UUID") if has_cdi() else lacks


def _drivers(lock: ImageLock, machine: Machine) -> Iterator[DoctorFinding]:
    """Images whose stated minimum this driver doesn't reach."""
    remedy = "update the driver, or use an older image; data-centre GPUs may get by on forward compatibility"
    here = machine.driver
    for image in lock.images:
        if image.minimum_driver and here and _numbers(here) < _numbers(image.minimum_driver):
            mismatch = f"needs driver {image.minimum_driver}, this machine has {here}"
            yield DoctorFinding.warning(f"image {image.name}", mismatch, remedy)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _images(lock: ImageLock, stores: list[EngineFacts]) -> DoctorFinding:
    try:
        here = dict.fromkeys(name for facts in stores for name in images_here(facts.name, lock.images))
    except MachineError as error:
        return DoctorFinding.warning("images", str(error), "repair the engine")
    if here:
        return DoctorFinding.ok("images", f"{', '.join(here)} of {len(lock.images)} locked")
    remedy = "pybench images pull NAME; until then workers run in this machine's Python"
    return DoctorFinding.warning(
        "images", f"none of the {len(lock.images)} locked for {this_platform()} is here", remedy
    )
