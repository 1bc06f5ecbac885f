"""What docker and podman have in common as engines."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pybench.model.container import ContainerSetup, EngineFacts, ImageIdentity, ImageLock, LockedImage
from pybench.model.errors import UsageError
from pybench.model.machine import DoctorFinding
from pybench.run.engines.base import Notify, facts_of_command
from pybench.run.engines.oci.build import build_dockerfile
from pybench.run.engines.oci.confinement import confinement_for
from pybench.run.engines.oci.gpu_access import GpuAccess
from pybench.run.engines.oci.launcher import OciLauncher
from pybench.run.engines.oci.orphans import this_runner
from pybench.run.engines.oci.pinned_image import is_present, pinned_image, unpinned_image
from pybench.run.engines.oci.probe import probed
from pybench.run.engines.oci.rootless import rootless_findings
from pybench.run.engines.oci.storage import storage_finding
from pybench.run.engines.requirements import EngineOptions, LaunchRequirements
from pybench.run.images.selection import locked_image


@dataclass(frozen=True)
class OciImageStore:
    """The images that the engine of ``facts`` has."""

    facts: EngineFacts

    def has(self, image: LockedImage) -> bool:
        """Whether ``image`` is there by a locked digest. Raises ``MachineError``."""
        return is_present(self.facts, image)

    def pull(self, image: LockedImage, notify: Notify) -> ImageIdentity:
        """Fetch ``image`` by digest. Raises ``MachineError``."""
        return pinned_image(self.facts, image, "", notify, pull=True)

    def build(self, folder: Path, tag: str, notify: Notify) -> str:
        """Build the Dockerfile of ``folder`` and return the image's id. Raises ``MachineError``."""
        return build_dockerfile(self.facts, folder, tag, notify)


@dataclass(frozen=True)
class OciEngine:
    """Docker or podman. ``examine`` describes it; ``gpu_access`` is its way to GPUs where CDI names none."""

    name: str
    examine: Callable[[], EngineFacts]
    gpu_access: Callable[[], GpuAccess]

    def find(self) -> EngineFacts:
        """Look whether it is installed and answers."""
        return facts_of_command(self.name, self.examine)

    def launcher(
        self, facts: EngineFacts, needs: LaunchRequirements, options: EngineOptions, notify: Notify, *, fetch: bool
    ) -> OciLauncher:
        """Launcher whose images are there, pulled if ``fetch``, and were started once on this machine."""
        request = needs.request
        lock = needs.lock(options)
        confinement = confinement_for(request, facts, (os.getuid(), os.getgid()))
        images = tuple(_image(facts, lock, backend, needs, options, notify, fetch=fetch) for backend in needs.backends)
        launcher = OciLauncher(
            container=ContainerSetup(
                engine=facts.name,
                engine_version=facts.version,
                runtime=facts.runtime,
                rootless=facts.rootless,
                lock=lock.path,
                images=images,
                mounts=request.mounts,
                relaxations=confinement.relaxations,
            ),
            confinement=confinement,
            gpu_access=GpuAccess(way="cdi") if facts.cdi else self.gpu_access(),
            runner=this_runner(),
            environment_of_suite=request.environment,
            secrets=request.secrets,
            models=_model_cache(),
        )
        return probed(launcher, facts, needs.gpu_uuids)

    def findings(self, facts: EngineFacts) -> Iterator[DoctorFinding]:
        """What it lacks for an ordinary user, and how much room its images have."""
        yield from rootless_findings(facts)
        if facts.data_root:
            yield storage_finding(facts.name, Path(facts.data_root))

    def store(self, facts: EngineFacts) -> OciImageStore:
        """Its images."""
        return OciImageStore(facts)


def json_object(text: str) -> dict[str, Any]:
    """The JSON object that an engine printed; empty when it printed something else."""
    try:
        values = json.loads(text)
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


def _image(
    facts: EngineFacts,
    lock: ImageLock,
    backend: str,
    needs: LaunchRequirements,
    options: EngineOptions,
    notify: Notify,
    *,
    fetch: bool,
) -> ImageIdentity:
    name = options.image or needs.image_name(backend)
    if name is None or lock.named(name):
        return pinned_image(facts, locked_image(lock, name, backend, needs.device), backend, notify, pull=fetch)
    if options.allow_unpinned or (needs.began and not needs.began.pinned):
        return unpinned_image(facts, name, backend)
    raise UsageError(f"image {name!r} is not in {lock.path}; lock it, or use --allow-unpinned and never pass")


def _model_cache() -> Path | None:
    """The shell's Hugging Face hub cache, where it has one; the folder around it holds a token."""
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    folder = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    return folder.resolve() if folder.is_dir() else None
