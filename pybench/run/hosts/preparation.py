"""Choose the lead's launcher on every other host of a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pybench.model.errors import MachineError
from pybench.run.engines.base import Launcher, LaunchRequirements
from pybench.run.engines.choice import Choose
from pybench.run.hosts.gathering import Gathering, unlike_images
from pybench.run.hosts.link import HostLink
from pybench.run.hosts.messages import Prepare, Prepared

PREPARE_LIMIT_S = 7500.0
"""A host pulls an image, or makes an image file, within this; one that is gone is noticed at once."""


def chosen_on_all(choose: Choose, gathering: Gathering) -> Choose:
    """``choose``, which then has all other hosts choose the same.

    This host is first: where hosts share a cache of images, the others find there what it has fetched.
    """

    def chosen(needs: LaunchRequirements) -> Launcher:
        launcher = choose(needs)
        prepare(gathering, needs, launcher)
        return launcher

    return chosen


def prepare(gathering: Gathering, needs: LaunchRequirements, launcher: Launcher) -> None:
    """Have all other hosts choose what ``launcher`` is here, at the same time.

    Raises ``MachineError`` with a line for each host that can't, or has other images.
    """
    container = launcher.container
    order = Prepare(
        engine=launcher.name,
        backends=needs.backends,
        device=needs.device,
        request=needs.request,
        num_gpus=len(needs.gpu_uuids),
        container=None if container is None else replace(container, lock=""),  # each host has its own
    )
    for link in gathering.links:
        link.order(order)
    if lines := [line for link in gathering.links for line in _problems(link, gathering.lead.name, launcher)]:
        raise MachineError("\n".join(lines))
    images = tuple(sorted(image.id for image in container.images)) if container else ()
    gathering.lead = replace(gathering.lead, engine=launcher.name, images=images)
    for link in gathering.links:
        link.host = replace(link.host, engine=launcher.name, images=images)


def _problems(link: HostLink, lead: str, launcher: Launcher) -> Iterator[str]:
    """A line for each reason why this host can't start the lead's workers."""
    prepared, _ = link.answer(Prepared, PREPARE_LIMIT_S)
    if prepared.problem:
        yield f"host {link.name}: {prepared.problem}"
    elif launcher.container is not None:
        found = {image.backend: image.digests for image in prepared.images}
        yield from unlike_images(lead, launcher.container.images, link.name, found)
