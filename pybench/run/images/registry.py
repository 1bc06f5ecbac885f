"""Images in a registry, read with a tool that this machine has, and those built from a folder of ``containers/``."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pybench import __version__
from pybench.files.toml_file import refuse
from pybench.machine.command import run_command
from pybench.model.container import ImageLock, LockedImage, PlatformDigests
from pybench.model.errors import FileError, MachineError, Problem, UsageError
from pybench.run.images.lock import lock_text, this_platform

_LIMIT_S = 120.0
_LOOPBACK = ("localhost", "127.0.0.1")


@dataclass(frozen=True, kw_only=True)
class RegistryManifest:
    """A registry's answer for one name.

    ``digest`` is computed from the bytes served, not taken from a tool's output. An index has ``platforms`` (their
    manifests' digests), a single image has ``config`` and ``layers``.
    """

    digest: str
    platforms: dict[str, str]
    config: str | None
    layers: tuple[str, ...] = ()


def registry_tool() -> str:
    """Name of the tool that :func:`fetch_manifest` uses. Raises ``MachineError`` when there is none."""
    for name in _TOOLS:
        if name != "docker" and shutil.which(name):
            return name
    if shutil.which("docker") and run_command(("docker", "buildx", "version")).ok:
        return "docker"
    raise MachineError("no tool here can read a registry: install skopeo, crane, or docker with its buildx plugin")


def fetch_manifest(tool: str, reference: str) -> RegistryManifest:
    """Fetch the manifest of ``repository:tag`` or ``repository@digest``. Raises ``MachineError``."""
    argv = _TOOLS[tool](reference)
    result = run_command(argv, _LIMIT_S)
    if not result.ok:
        # The end of a chain of causes, which skopeo's log has in quotes.
        cause = ": ".join(result.error_line.rstrip('"').replace('\\"', '"').split(": ")[-2:])
        step = f"check the network (HTTPS_PROXY), the image's name, and the login of {tool}"
        raise MachineError(f"{tool} can't read {reference}: {cause}; {step}")
    try:
        return read_manifest(result.out.encode(errors="surrogateescape"))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise MachineError(f"{tool} received no image manifest for {reference}: {error}") from error


def read_manifest(served: bytes) -> RegistryManifest:
    """Read an OCI or docker manifest, or an index of them. Raises ``ValueError`` or ``LookupError`` otherwise."""
    values = json.loads(served)
    platforms: dict[str, str] = {}
    for child in values.get("manifests") or ():
        about = child.get("platform") or {}
        # Attestations are children, too, of a platform called unknown; variants such as arm/v7 aren't ours.
        platforms[f"{about.get('os')}/{about.get('architecture')}"] = child["digest"]
    return RegistryManifest(
        digest=f"sha256:{hashlib.sha256(served).hexdigest()}",
        platforms={name: digest for name, digest in platforms.items() if name in {"linux/amd64", "linux/arm64"}},
        config=None if "manifests" in values else values["config"]["digest"],
        layers=tuple(layer["digest"] for layer in values.get("layers") or ()),
    )


def _insecure(reference: str, option: str) -> tuple[str, ...]:
    """Plain HTTP is for this machine's own registry alone, as docker has it."""
    return (option,) if reference.split("/", maxsplit=1)[0].split(":", maxsplit=1)[0] in _LOOPBACK else ()


_TOOLS: dict[str, Callable[[str], tuple[str, ...]]] = {
    "skopeo": lambda name: ("skopeo", "inspect", "--raw", *_insecure(name, "--tls-verify=false"), f"docker://{name}"),
    "crane": lambda name: ("crane", "manifest", *_insecure(name, "--insecure"), name),
    "docker": lambda name: ("docker", "buildx", "imagetools", "inspect", "--raw", name),
}

Build = Callable[[Path, str], str]
"""An engine's build: folder and tag to the image's id; raises ``MachineError``."""


def build_image(lock: ImageLock, name: str, engine: str, build: Build) -> LockedImage:
    """Build ``containers/NAME`` beside the lock with ``engine``; the result is locked by its id on this platform.

    Raises ``UsageError`` when there is no such folder, ``FileError`` when its recipe pins too little, ``MachineError``
    when the engine can't build it.
    """
    folder = Path(lock.path).resolve().parent / name
    if not (folder / "Dockerfile").is_file():
        known = sorted(path.parent.name for path in folder.parent.glob("*/Dockerfile"))
        raise UsageError(f"{folder} has no Dockerfile; there are {', '.join(known) or 'none'}")
    check_dockerfile(folder / "Dockerfile")
    tag = __version__.partition("+")[0]  # a tag of an image has no +
    before = lock.named(name) or LockedImage(
        name=name, repository=f"localhost/pybench/{name}", tag=tag, backends=("torch",), platforms={}
    )
    # A tag, though nothing is started by it: engines clear away images that have none.
    digest = build(folder, f"{before.repository}:{before.tag}")
    platforms = {**before.platforms, this_platform(): PlatformDigests(config=digest)}
    return confirmed(replace(before, platforms=platforms, dockerfile=name), f"{engine} build")


_FROM = re.compile(r"FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE)
_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
_PIP = re.compile(r"\bpip3?\s+install\b")


def check_dockerfile(path: Path) -> None:
    """Raise ``FileError`` with every base that has no digest and every ``pip install`` that checks no hashes."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise refuse(path, f"can't be read: {error}") from error
    found = _problems(_instructions(text))
    problems = tuple(Problem(kind="rule", file=str(path), line=line, path="", message=fault) for line, fault in found)
    if problems:
        raise FileError(problems)


def _instructions(text: str) -> Iterator[tuple[int, str]]:
    """Each instruction with its continuation lines joined, and the line it begins on."""
    begun, parts = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("#"):
            continue
        begun = begun if parts else number
        parts += line.strip()
        if parts.endswith("\\"):
            parts = parts[:-1] + " "
        elif parts:
            yield begun, parts
            parts = ""


def _problems(instructions: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    stages = {"scratch"}
    for line, text in instructions:
        if base := _FROM.match(text):
            if base[1] not in stages and not _DIGEST.search(base[1]):
                remedy = "write REPOSITORY@sha256:…, as `pybench images lock` finds it"
                yield line, f"FROM {base[1]} has no digest; {remedy}"
            stages.add(base[2] or base[1])
        # The exec form has its words in quotes.
        words = re.sub(r'[\[\]",\s]+', " ", text)
        if text.upper().startswith("RUN") and _PIP.search(words) and "--require-hashes" not in words:
            yield line, "pip install without --require-hashes; pin every package by hash in a requirements file"


Fetch = Callable[[str], RegistryManifest]
"""A registry: reference to manifest; raises ``MachineError``."""


def resolved(image: LockedImage, fetch: Fetch, tool: str) -> LockedImage:
    """``image`` with the digests that its tag means now."""
    top = fetch(f"{image.repository}:{image.tag}")
    if top.platforms:
        platforms = {
            platform: PlatformDigests(manifest=digest, config=fetch(f"{image.repository}@{digest}").config)
            for platform, digest in top.platforms.items()
        }
        locked = replace(image, index_digest=top.digest, platforms=platforms)
    else:
        # The manifest of a single image does not name its platform; the lock does.
        (platform, *_) = image.platforms or ("linux/amd64",)
        digests = PlatformDigests(manifest=top.digest, config=top.config)
        locked = replace(image, index_digest=None, platforms={platform: digests})
    return confirmed(locked, tool)


def disagreements(image: LockedImage, fetch: Fetch) -> list[str]:
    """Differences between registry and lock, in words; a tag that has moved is no difference."""
    differences: list[str] = []
    index = fetch(f"{image.repository}@{image.index_digest}") if image.index_digest else None
    if index and index.digest != image.index_digest:
        differences.append(f"the index is {index.digest}, locked as {image.index_digest}")
    for platform, digests in image.platforms.items():
        if digests.manifest is None:
            continue
        served = index.platforms.get(platform, "not in the index") if index else digests.manifest
        config = digests.config
        if served == digests.manifest:
            manifest = fetch(f"{image.repository}@{digests.manifest}")
            served, config = manifest.digest, manifest.config
        if served != digests.manifest:
            differences.append(f"{platform} is {served}, locked as {digests.manifest}")
        elif digests.config and config != digests.config:
            differences.append(f"{platform}'s configuration is {config}, locked as {digests.config}")
    return differences


def confirmed(image: LockedImage, tool: str) -> LockedImage:
    """``image`` marked as confirmed by a registry now."""
    return replace(image, verified_by=tool, verified_utc=datetime.now(UTC).isoformat(timespec="seconds"))


def with_image(lock: ImageLock, image: LockedImage) -> ImageLock:
    """``lock`` with ``image`` in place of the one of that name, or at its end."""
    images = tuple(image if old.name == image.name else old for old in lock.images)
    return replace(lock, images=images if lock.named(image.name) else (*images, image))


def lock_diff(before: ImageLock, after: ImageLock) -> str:
    """A change as a unified diff; empty when nothing changes."""
    name = Path(before.path).name
    old, new = (lock_text(lock).splitlines(keepends=True) for lock in (before, after))
    return "".join(difflib.unified_diff(old, new, fromfile=name, tofile=f"{name} (new)", n=1))
