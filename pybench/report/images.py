"""The lock as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pybench.model.container import ImageLock, LockedImage
from pybench.report.text.printable import printable


def render(lock: ImageLock, platform: str, here: Mapping[str, Sequence[str]]) -> str:
    """Three lines for each image: what it serves, who confirmed it and which engines here have it; its tag; its digest.

    ``here`` names the engines of this machine that have an image. Tag and digest stay whole, to be copied.
    """
    return "".join(_lines(image, platform, here.get(image.name, ())) for image in lock.images) or "no image is locked\n"


def _lines(image: LockedImage, platform: str, engines: Sequence[str]) -> str:
    digest = next((name.rpartition("@")[2] for name in image.references(platform)), f"not locked for {platform}")
    verified = f"verified by {image.verified_by}, {image.verified_utc}" if image.verified_by else "unverified"
    where = f"in {', '.join(engines)}" if engines else "not here"
    serves = ", ".join(image.backends) or "no backend"
    about = f"{image.name}  for {serves} on {image.device}; {verified}; {where}"
    lines = (about, f"  {image.repository}:{image.tag}", f"  {digest}")
    return "".join(f"{printable(line)}\n" for line in lines)
