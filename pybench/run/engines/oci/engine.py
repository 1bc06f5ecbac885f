"""What docker and podman have in common as engines: builds, storage, trial starts, limits without root."""

from __future__ import annotations

import json
import os
import pwd
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pybench.machine.command import CommandResult, run_command
from pybench.model.container import ContainerSetup, EngineFacts
from pybench.model.errors import MachineError, UsageError
from pybench.model.machine import DoctorFinding
from pybench.model.text import amount_text
from pybench.run.engines.base import Engine, EngineOptions, LaunchRequirements, Notify, engine_error
from pybench.run.engines.image_launcher import OTHER_REMEDY, PROBE, python_version, trial_job
from pybench.run.engines.oci.confinement import (
    CDI_COMMAND,
    Confinement,
    GpuOptions,
    after_refusal,
    cdi_options,
    confinement_for,
    device_nodes,
    has_cdi,
    node_options,
    toolkit_options,
)
from pybench.run.engines.oci.images import complaint, pinned_image, unpinned_image, with_algorithm
from pybench.run.engines.oci.launcher import REMOVE, OciLauncher, prepare_files, runner_mark
from pybench.run.images.lock import locked_image

# The largest locked images unpack to about as much.
_IMAGE_BYTES = 30 * 2**30
_MIN_FREE_BYTES = 2 * _IMAGE_BYTES


@dataclass(frozen=True)
class OciEngine(Engine):
    """Docker or podman. ``gpu_access`` is its way to GPUs where CDI names none."""

    name: str
    examine: Callable[[], EngineFacts]
    gpu_access: Callable[[], GpuOptions]

    def launcher(
        self, facts: EngineFacts, needs: LaunchRequirements, options: EngineOptions, notify: Notify, *, fetch: bool
    ) -> OciLauncher:
        """Launcher whose images are there, pulled if ``fetch``, and were started once on this machine."""
        request = needs.request
        lock = needs.lock(options)
        confinement = confinement_for(request, facts, (os.getuid(), os.getgid()))
        images = []
        for backend in needs.backends:
            name = options.image or needs.image_name(backend)
            if name is None or lock.named(name):
                locked = locked_image(lock, name, backend, needs.device)
                images.append(pinned_image(facts, locked, backend, notify, pull=fetch))
            elif options.allow_unpinned or (needs.began and not needs.began.pinned):
                images.append(unpinned_image(facts, name, backend))
            else:
                locks = f"image {name!r} is not in {lock.path}"
                raise UsageError(f"{locks}; lock it, or use --allow-unpinned and never pass")
        # The shell's Hugging Face hub cache, where it has one; the folder around it holds a token.
        home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
        models = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
        launcher = OciLauncher(
            container=ContainerSetup(
                engine=facts.name,
                engine_version=facts.version,
                runtime=facts.runtime,
                rootless=facts.rootless,
                lock=lock.path,
                images=tuple(images),
                mounts=request.mounts,
                relaxations=confinement.relaxations,
            ),
            confinement=confinement,
            gpu_options=cdi_options if facts.cdi else self.gpu_access(),
            runner=runner_mark(os.getpid()) or "",
            environment_of_suite=request.environment,
            secrets=request.secrets,
            models=models.resolve() if models.is_dir() else None,
        )
        return probed(launcher, facts, needs.gpu_uuids)

    def findings(self, facts: EngineFacts) -> Iterator[DoctorFinding]:
        """Missing parts for an ordinary user, and room for images."""
        if facts.rootless and (lacks := _lacks()):
            yield DoctorFinding.warning(f"{facts.name} rootless", ", ".join(lacks), "; ".join(lacks.values()))
        if facts.data_root is None:
            return
        name = f"{facts.name} storage"
        try:
            free = shutil.disk_usage(facts.data_root).free
        except OSError as error:
            unread = f"{facts.data_root} can't be read: {error.strerror}"
            yield DoctorFinding.warning(name, unread, "let its owner find out how much is free")
            return
        room = f"{amount_text(free)} free in {facts.data_root}"
        scarce = DoctorFinding.warning(name, room, f"free space: images take {amount_text(_IMAGE_BYTES)} each")
        yield DoctorFinding.ok(name, room) if free >= _MIN_FREE_BYTES else scarce


def json_object(text: str) -> dict[str, Any]:
    """The JSON object that an engine printed; empty when it printed something else."""
    try:
        values = json.loads(text)
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


def build_image(facts: EngineFacts, folder: Path, tag: str, notify: Notify) -> str:
    """Build the Dockerfile of ``folder`` and return the image's id. Raises ``MachineError``.

    An engine that refuses its runtime or cgroup manager here is given another, as for workers.
    """
    confinement = Confinement()
    with tempfile.TemporaryDirectory(prefix="pybench-") as scratch:
        file = Path(scratch) / "id"
        command = ("build", "--force-rm", "--iidfile", str(file), "--tag", tag, str(folder))
        while words := complaint((facts.name, *confinement.engine_options, *command), notify):
            relaxed = after_refusal(confinement, "\n".join(words), {}, facts)
            if relaxed is None or relaxed.engine_options == confinement.engine_options:
                raise engine_error(facts.name, facts.data_root, f"can't build {folder}", words[-1])
            confinement = relaxed
            notify(f"{facts.name}: again with {' '.join(confinement.engine_options)}")
        return with_algorithm(file.read_text(encoding="utf-8").strip())


# Every relaxation that a machine may force takes one more try: four limits that may take some halvings, and the rest.
_MAX_TRIES = 24
_LIMITS = {
    "nofile": resource.RLIMIT_NOFILE,
    "nproc": resource.RLIMIT_NPROC,
    "memlock": resource.RLIMIT_MEMLOCK,
    "stack": resource.RLIMIT_STACK,
}


def probed(launcher: OciLauncher, facts: EngineFacts, gpu_uuids: tuple[str, ...]) -> OciLauncher:
    """Start each image once with its GPUs, relax what this machine refuses, and record the Python inside."""
    hard_limits = {name: resource.getrlimit(number)[1] for name, number in _LIMITS.items()}
    images = []
    for image in launcher.container.images:
        for _ in range(_MAX_TRIES):
            result = _probe(launcher, image.backend, gpu_uuids)
            relaxed = None if result.ok else after_refusal(launcher.confinement, result.error_line, hard_limits, facts)
            if relaxed is None:
                break
            launcher = replace(launcher, confinement=relaxed)
        if not result.ok:
            remedy = OTHER_REMEDY
            # An image may keep its Python, or the root folder, from users other than root.
            if "permission denied" in result.error_line.lower():
                opened = f"let all users reach {image.interpreter} in the image"
                remedy = f'{opened}, or set relax = ["root_user"] in the suite\'s [container]'
            failed = f"can't start a worker in image {image.name}"
            raise engine_error(launcher.name, facts.data_root, failed, result.error_line, remedy)
        images.append(replace(image, python=python_version(image, result)))
    setup = replace(launcher.container, images=tuple(images), relaxations=launcher.confinement.relaxations)
    return replace(launcher, container=setup)


def _probe(launcher: OciLauncher, backend: str, gpu_uuids: tuple[str, ...]) -> CommandResult:
    with trial_job(backend, gpu_uuids) as job:
        prepare_files(launcher, job)
        try:
            return run_command(launcher.start_argv(job, "-I", "-B", "-c", PROBE))
        except KeyError as error:
            message = (
                f"{launcher.name} can't be given GPU {error}: it has no device file, and no CDI specification names it"
            )
            raise MachineError(f"{message}; {CDI_COMMAND}") from None
        finally:
            run_command(launcher.container_argv(job, *REMOVE), outlives=True)


def _lacks() -> dict[str, str]:
    """Missing parts, each with its remedy."""
    lacks = {}
    if "pids" not in _delegated_controllers():
        lacks["without the pids controller"] = "delegate cgroup controllers to users (systemd: Delegate=yes)"
    pinned_bytes = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]  # RDMA and NCCL pin their buffers
    if pinned_bytes != resource.RLIM_INFINITY:
        lacks[f"memlock {pinned_bytes:,} bytes at most"] = "raise memlock in /etc/security/limits.conf"
    if not _has_subordinate_ids():
        lacks["without subordinate ids"] = "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER"
    return lacks


def _has_subordinate_ids() -> bool:
    """Whether this user has ids for the users inside: subuid(5)."""
    user = pwd.getpwuid(os.getuid())
    try:
        lines = Path("/etc/subuid").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return any(line.partition(":")[0] in {user.pw_name, str(user.pw_uid)} for line in lines)


def _delegated_controllers() -> list[str]:
    """Controllers of cgroup v2 that this user's processes may use; none on cgroup v1."""
    try:
        cgroup = Path("/proc/self/cgroup").read_text(encoding="utf-8").rpartition("::")[2].strip()
        return Path(f"/sys/fs/cgroup{cgroup}/cgroup.controllers").read_text(encoding="utf-8").split()
    except OSError:
        return []


def find_docker() -> EngineFacts:
    """Ask the docker daemon about itself."""
    result = run_command(("docker", "info", "--format", "{{json .}}"))
    info = json_object(result.out)
    if not info.get("ServerVersion"):
        complaint = "; ".join(info.get("ServerErrors") or ()) or result.error_line
        return EngineFacts(name="docker", version=None, reason=f"the docker daemon doesn't answer: {complaint}")
    return EngineFacts(
        name="docker",
        version=info["ServerVersion"],
        rootless=any("name=rootless" in option for option in info.get("SecurityOptions") or ()),
        runtime=info.get("DefaultRuntime"),
        runtimes=tuple(sorted(info.get("Runtimes") or ())),
        cdi=bool(info.get("CDISpecDirs")) and has_cdi(tuple(info["CDISpecDirs"])),
        data_root=info.get("DockerRootDir"),
    )


def find_podman() -> EngineFacts:
    """Ask podman about itself."""
    result = run_command(("podman", "info", "--format", "json"))
    info = json_object(result.out)
    if not result.ok or "host" not in info:
        return EngineFacts(name="podman", version=None, reason=f"podman does not work here: {result.error_line}")
    host = info["host"]
    return EngineFacts(
        name="podman",
        version=info.get("version", {}).get("Version"),
        rootless=bool(host.get("security", {}).get("rootless")),
        runtime=host.get("ociRuntime", {}).get("name"),
        runtimes=tuple(name for name in ("crun", "runc") if shutil.which(name)),
        cdi=has_cdi(),
        data_root=info.get("store", {}).get("graphRoot"),
    )


DOCKER = OciEngine("docker", find_docker, lambda: toolkit_options)
PODMAN = OciEngine("podman", find_podman, lambda: partial(node_options, nodes=device_nodes()))
