"""The lock as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pybench.model.image import ImageLock, LockedImage
from pybench.report.printable import printable


def render(lock: ImageLock, platform: str, here: Mapping[str, Sequence[str]]) -> str:
    """Two lines for each image: what it is and serves; the digest it is started by and who confirmed it.

    ``here`` names the engines of this machine that have an image.
    """
    return "".join(_lines(image, platform, here.get(image.name, ())) for image in lock.images) or "no image is locked\n"


def _lines(image: LockedImage, platform: str, engines: Sequence[str]) -> str:
    digest = next(iter(image.references(platform)), f"not locked for {platform}")
    verified = f"verified by {image.verified_by}, {image.verified_utc}" if image.verified_by else "unverified"
    where = f"in {', '.join(engines)}" if engines else "not here"
    serves = ", ".join(image.backends) or "no backend"
    about = f"for {serves} on {image.device}; {verified}; {where}"
    lines = (f"{image.name}  {image.repository}:{image.tag}  {about}", f"  {digest}")
    return "".join(f"{printable(line)}\n" for line in lines)
