"""Read manifests from an image registry, with a tool that this machine has."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass

from pybench.machine.command import run_command
from pybench.model.errors import MachineError

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
        raise MachineError(f"{tool} can't read {reference}: {result.error_line}")
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
