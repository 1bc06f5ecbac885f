"""An image named by digest, in an engine's store: found, pulled if need be, and checked against the lock."""

from __future__ import annotations

from pybench.model.container import EngineFacts, ImageIdentity, LockedImage
from pybench.model.errors import MachineError, UsageError
from pybench.run.engines.base import Notify
from pybench.run.engines.oci.images import ImageFacts, inspect_image, pull_image
from pybench.run.images.selection import AbsentImageError, this_platform


def pinned_image(facts: EngineFacts, image: LockedImage, backend: str, notify: Notify, *, pull: bool) -> ImageIdentity:
    """The locked image in the engine's store, pulled by digest if ``pull`` and not there yet.

    Raises ``AbsentImageError`` when it isn't there, ``MachineError`` when what is there isn't it.
    """
    platform = this_platform()
    found = _find(facts, image, platform)
    if found is None and pull and image.references(platform)[0].count("@"):
        notify(f"{facts.name}: pulling image {image.name}, {image.references(platform)[0]}")
        pull_image(facts, image.references(platform)[0], platform, notify)
        found = _find(facts, image, platform)
    if found is None:
        raise AbsentImageError(
            f"{facts.name} has no image {image.name} by its locked digest ({image.references(platform)[0]}); "
            f"get it: pybench images pull {image.name}{_impostor(facts, image)}"
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


def is_present(facts: EngineFacts, image: LockedImage) -> bool:
    """Whether the engine has ``image`` by a locked digest. Raises ``MachineError``."""
    return _find(facts, image, this_platform()) is not None


def _find(facts: EngineFacts, image: LockedImage, platform: str) -> tuple[str, ImageFacts] | None:
    for reference in image.references(platform):
        found = inspect_image((facts.name,), reference)
        if found:
            return reference, found
    return None


def _impostor(facts: EngineFacts, image: LockedImage) -> str:
    """Warn when the tag is here and means something else: the usual way to believe in an image that isn't there."""
    found = inspect_image((facts.name,), f"{image.repository}:{image.tag}")
    return f"; its tag {image.tag} is here, but names {found.id}, another image" if found else ""


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
