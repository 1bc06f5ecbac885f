"""An engine's images: inspected, pulled, and checked against the lock."""

from __future__ import annotations

import json
import subprocess
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pybench.machine.command import guarded_argv, run_command
from pybench.model.container import EngineFacts, ImageIdentity, LockedImage
from pybench.model.errors import MachineError, UsageError
from pybench.run.engines.base import Notify, engine_error
from pybench.run.images.lock import AbsentImageError, this_platform

_TAIL_LINES = 10
# How docker and podman, old and new, report that they do not have an image.
_ABSENT = ("no such image", "image not known", "failed to find image", "no such object")


@dataclass(frozen=True, kw_only=True)
class ImageFacts:
    """An image as its engine describes it: ``id`` is its name there, ``digests`` are those of manifests."""

    id: str
    digests: tuple[str, ...]
    platform: str
    labels: dict[str, str]

    @property
    def known_by(self) -> frozenset[str]:
        """Every digest that names this image."""
        return frozenset({self.id, *self.digests})


def inspect_image(engine: Sequence[str], reference: str) -> ImageFacts | None:
    """Describe the image ``reference``, ``None`` when the ``engine`` has none. Raises ``MachineError``."""
    result = run_command((*engine, "image", "inspect", reference))
    if not result.ok:
        error = result.error.lower()
        if any(text in error for text in _ABSENT):
            return None
        raise MachineError(f"{engine[0]} can't look up {reference}: {result.error_line}")
    try:
        return image_facts(json.loads(result.out)[0])
    except (ValueError, LookupError, TypeError) as error:
        command = f"{' '.join(engine)} image inspect {reference}"
        raise MachineError(
            f"{reference}: described in a form pybench can't read ({error}); look at: {command}"
        ) from error


def image_facts(values: dict[str, Any]) -> ImageFacts:
    """Read one element of ``image inspect``'s result. Raises ``LookupError`` or ``TypeError`` when it is none."""
    digests = [name.rpartition("@")[2] for name in values.get("RepoDigests") or ()]
    if values.get("Digest"):  # podman, also for an image that came from no registry
        digests.append(values["Digest"])
    architecture = values["Architecture"]
    return ImageFacts(
        id=with_algorithm(values["Id"]),
        digests=tuple(dict.fromkeys(digests)),
        platform=f"{values['Os']}/{architecture}",
        labels=(values.get("Config") or {}).get("Labels") or values.get("Labels") or {},
    )


def with_algorithm(digest: str) -> str:
    """Podman leaves ``sha256:`` off ids."""
    return digest if digest.startswith("sha256:") else f"sha256:{digest}"


def complaint(argv: Sequence[str], notify: Notify) -> list[str]:
    """Last lines of a command that failed, each shown by ``notify``; empty on success. Raises ``MachineError``."""
    tail: deque[str] = deque(["no output"], maxlen=_TAIL_LINES)
    try:
        with subprocess.Popen(
            guarded_argv(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            for line in filter(str.strip, process.stdout or ()):
                notify(line.rstrip())
                tail.append(line.strip())
    except OSError as error:
        raise MachineError(f"{argv[0]}: {error.strerror}") from error
    return list(tail) if process.returncode else []


def pinned_image(facts: EngineFacts, image: LockedImage, backend: str, notify: Notify, *, pull: bool) -> ImageIdentity:
    """The locked image, pulled if ``pull``. Raises ``AbsentImageError``, ``MachineError`` for another image."""
    platform = this_platform()
    found = find_image(facts, image, platform)
    if found is None and pull and image.references(platform)[0].count("@"):
        notify(f"{facts.name}: pulling image {image.name}, {image.references(platform)[0]}")
        pulled = image.references(platform)[0]
        if words := complaint((facts.name, "pull", "--platform", platform, pulled), notify):
            remedy = "check the network and the login, or load the image from a file"
            raise engine_error(facts.name, facts.data_root, f"can't pull {pulled}", words[-1], remedy)
        found = find_image(facts, image, platform)
    if found is None:
        # A tag that is here and means something else is the usual way to believe in an image that isn't there.
        other = inspect_image((facts.name,), f"{image.repository}:{image.tag}")
        impostor = f"; its tag {image.tag} is here, but names {other.id}, another image" if other else ""
        raise AbsentImageError(
            f"{facts.name} has no image {image.name} by its locked digest ({image.references(platform)[0]}); "
            f"get it: pybench images pull {image.name}{impostor}"
        )
    reference, image_facts = found
    if not image_facts.known_by.intersection(image.digests(platform)):
        raise MachineError(
            f"{facts.name} has {image_facts.id} as {reference}, which is none of the digests locked for {image.name}; "
            "do not use this engine's store until that is explained"
        )
    if image_facts.platform != platform:
        raise MachineError(f"image {image.name} is for {image_facts.platform}, this machine is {platform}")
    return _identity(backend, image.name, reference, image_facts, image)


def unpinned_image(facts: EngineFacts, reference: str, backend: str) -> ImageIdentity:
    """Whatever ``reference`` names in the engine's store now. Raises ``UsageError`` or ``MachineError``."""
    if reference.startswith("-") or any(letter.isspace() for letter in reference):
        raise UsageError(f"{reference!r} is no name of an image")
    found = inspect_image((facts.name,), reference)
    if found is None:
        raise MachineError(f"{facts.name} has no image {reference}; an unpinned one is never pulled: pull it yourself")
    return _identity(backend, reference, reference, found, None)


def find_image(facts: EngineFacts, image: LockedImage, platform: str) -> tuple[str, ImageFacts] | None:
    """The first of the image's locked references that the engine has. Raises ``MachineError``."""
    for reference in image.references(platform):
        found = inspect_image((facts.name,), reference)
        if found:
            return reference, found
    return None


def _identity(backend: str, name: str, reference: str, facts: ImageFacts, image: LockedImage | None) -> ImageIdentity:
    return ImageIdentity(
        backend=backend,
        name=name,
        reference=reference,
        id=facts.id,
        digests=facts.digests,
        platform=facts.platform,
        labels=facts.labels,
        python=None,
        interpreter=image.interpreter if image else "/usr/bin/python3",
        entrypoint=image.entrypoint if image else "replace",
        pinned=image is not None,
    )
