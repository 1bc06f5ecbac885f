"""An engine's images: inspected, pulled, and checked against the lock."""

from __future__ import annotations

import json
import subprocess
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from pybench.machine.command import guarded_argv, run_command
from pybench.model.container import EngineFacts, ImageIdentity, LockedImage
from pybench.model.errors import MachineError, UsageError
from pybench.model.text import abridged
from pybench.run.engines.base import Notify, engine_error
from pybench.run.images.lock import AbsentImageError, this_platform

_TAIL_LINES = 10
# How docker and podman, old and new, report that they do not have an image.
_ABSENT = ("no such image", "image not known", "failed to find image", "no such object")


def inspect_image(engine: str, reference: str, backend: str = "") -> ImageIdentity | None:
    """Describe what ``reference`` names now, as an unpinned image; ``None`` when ``engine`` has none.

    Raises ``MachineError`` where the engine does not answer, or in an unknown form.
    """
    described = _described(engine, (reference,))
    try:
        if not (images := json.loads(described)):
            return None
        values = images[0]
        digests = [name.rpartition("@")[2] for name in values.get("RepoDigests") or ()]
        if values.get("Digest"):  # podman, also for an image that came from no registry
            digests.append(values["Digest"])
        return ImageIdentity(
            backend=backend,
            name=reference,
            reference=reference,
            id=with_algorithm(values["Id"]),
            digests=tuple(dict.fromkeys(digests)),
            platform=f"{values['Os']}/{values['Architecture']}",
            labels=(values.get("Config") or {}).get("Labels") or values.get("Labels") or {},
            python=None,
            interpreter="/usr/bin/python3",
            entrypoint="replace",
            pinned=False,
        )
    except (ValueError, LookupError, TypeError) as error:
        raise MachineError(
            f"{reference}: described in a form pybench can't read ({error}); "
            f"look at: {engine} image inspect {reference}"
        ) from error


def images_here(engine: str, images: Sequence[LockedImage]) -> list[str]:
    """Names of the locked images that ``engine`` has, by one question. Raises ``MachineError``."""
    names = {reference: image.name for image in images for reference in image.references(this_platform())}
    described = _described(engine, tuple(names)) if names else ""
    return list({name: None for reference, name in names.items() if reference.rpartition(":")[2] in described})


def _described(engine: str, references: Sequence[str]) -> str:
    """JSON of the images that ``engine`` has of ``references``; their digests are in it."""
    result = run_command((engine, "image", "inspect", *references))
    if not result.ok and not any(text in result.error.lower() for text in _ABSENT):
        raise MachineError(f"{engine} can't look up {abridged(references, 1)}: {result.error_line}")
    return result.out or "[]"


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
    identity = find_image(facts, image, backend)
    wanted = image.references(platform)[0]
    if identity is None and pull and "@" in wanted:
        notify(f"{facts.name}: pulling image {image.name}, {wanted}")
        if words := complaint((facts.name, "pull", "--platform", platform, wanted), notify):
            remedy = "check the network and the login, or load the image from a file"
            raise engine_error(facts.name, facts.data_root, f"can't pull {wanted}", words[-1], remedy)
        identity = find_image(facts, image, backend)
    if identity is None:
        # A tag that is here and means something else is the usual way to believe in an image that isn't there.
        other = inspect_image(facts.name, f"{image.repository}:{image.tag}")
        impostor = f"; its tag {image.tag} is here, but names {other.id}, another image" if other else ""
        raise AbsentImageError(
            f"{facts.name} has no image {image.name} by its locked digest ({wanted}); "
            f"get it: pybench images pull {image.name}{impostor}"
        )
    if set(identity.known_by).isdisjoint(image.digests(platform)):
        raise MachineError(
            f"{facts.name} has {identity.id} as {identity.reference}, which is none of the digests locked for "
            f"{image.name}; do not use this engine's store until that is explained"
        )
    if identity.platform != platform:
        raise MachineError(f"image {image.name} is for {identity.platform}, this machine is {platform}")
    return replace(identity, name=image.name, interpreter=image.interpreter, entrypoint=image.entrypoint, pinned=True)


def unpinned_image(facts: EngineFacts, reference: str, backend: str) -> ImageIdentity:
    """Whatever ``reference`` names in the engine's store now. Raises ``UsageError`` or ``MachineError``."""
    if reference.startswith("-") or any(letter.isspace() for letter in reference):
        raise UsageError(f"{reference!r} is no name of an image")
    identity = inspect_image(facts.name, reference, backend)
    if identity is None:
        raise MachineError(f"{facts.name} has no image {reference}; an unpinned one is never pulled: pull it yourself")
    return identity


def find_image(facts: EngineFacts, image: LockedImage, backend: str = "") -> ImageIdentity | None:
    """The first of the image's locked references that the engine has. Raises ``MachineError``."""
    identities = (inspect_image(facts.name, reference, backend) for reference in image.references(this_platform()))
    return next(filter(None, identities), None)
