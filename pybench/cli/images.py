"""``pybench images``: the lock of container images, against registries and this machine's engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pybench.cli.io import echo
from pybench.cli.params import PATH
from pybench.model.errors import MachineError, UsageError
from pybench.report.table import printable
from pybench.run.engines import CONTAINER_ENGINES

if TYPE_CHECKING:
    from pybench.model.container import EngineFacts, ImageLock

_LOCK = click.option("--lock", "path", type=PATH, metavar="FILE", help="Another lock file.")
_NAMES = click.argument("names", metavar="[IMAGE]...", nargs=-1)
_ENGINE = click.option("--engine", type=click.Choice(CONTAINER_ENGINES), help="Default: the first that answers.")


@click.group()
def images() -> None:
    """Show, confirm, change and fetch the locked container images."""


@images.command("list")
@_LOCK
def show(path: Path | None) -> None:
    """Print every locked image, and which engines here have it."""
    from pybench.run.engines.oci.images import images_here
    from pybench.run.images.lock import this_platform

    lock = _read(path)
    stored = {facts.name: images_here(facts.name, lock.images) for facts in _stores(CONTAINER_ENGINES)[0]}
    here = {image.name: [engine for engine, names in stored.items() if image.name in names] for image in lock.images}
    echo(lock_text(lock, this_platform(), here), nl=False)


def lock_text(lock: ImageLock, platform: str, here: Mapping[str, Sequence[str]]) -> str:
    """Three lines for each image: what it serves and ``here``, its tag, its digest, to be copied."""
    lines = []
    for image in lock.images:
        digest = next((name.rpartition("@")[2] for name in image.references(platform)), f"not locked for {platform}")
        verified = f"verified by {image.verified_by}, {image.verified_utc}" if image.verified_by else "unverified"
        where = f"in {', '.join(here[image.name])}" if here.get(image.name) else "not here"
        serves = ", ".join(image.backends) or "no backend"
        about = f"{image.name}  for {serves} on {image.device}; {verified}; {where}"
        lines += [about, f"  {image.repository}:{image.tag}", f"  {digest}"]
    return "".join(f"{printable(line)}\n" for line in lines) or "no image is locked\n"


@images.command()
@_NAMES
@_LOCK
@click.option("--write", is_flag=True, help="Mark in the lock what the registry confirmed.")
@click.pass_context
def verify(ctx: click.Context, names: tuple[str, ...], path: Path | None, write: bool) -> None:
    """Check that the registry serves the locked digests. Exits 1 when it serves others."""
    from pybench.run.images.lock import chosen
    from pybench.run.images.registry import confirmed, disagreements, fetch_manifest, registry_tool, with_image

    lock = _read(path)
    tool = registry_tool()
    wrong = False
    for image in chosen(lock, names):
        differences = disagreements(image, partial(fetch_manifest, tool))
        echo(f"{image.name}: {'; '.join(differences) or f'as locked ({tool})'}")
        wrong = wrong or bool(differences)
        if not differences:
            lock = with_image(lock, confirmed(image, tool))
    if write:
        _write(lock)
    ctx.exit(1 if wrong else 0)


@images.command("lock")
@_NAMES
@_LOCK
@click.option("--tag", help="Move one image to this tag.")
@click.option("--dry-run", is_flag=True, help="Show the change without writing it.")
def relock(names: tuple[str, ...], path: Path | None, tag: str | None, dry_run: bool) -> None:
    """Resolve tags to digests and write them to the lock. The change is shown."""
    from pybench.run.images.lock import chosen
    from pybench.run.images.registry import fetch_manifest, lock_diff, registry_tool, resolved, with_image

    if tag and len(names) != 1:
        raise UsageError("--tag moves one image; name it")
    before = after = _read(path)
    tool = registry_tool()
    for image in chosen(before, names):
        after = with_image(after, resolved(replace(image, tag=tag or image.tag), partial(fetch_manifest, tool), tool))
    echo(lock_diff(before, after) or "nothing changes\n", nl=False)
    if not dry_run:
        _write(after)


@images.command()
@_NAMES
@_LOCK
@_ENGINE
def pull(names: tuple[str, ...], path: Path | None, engine: str | None) -> None:
    """Fetch locked images by digest."""
    from pybench.run.engines.oci.images import pinned_image
    from pybench.run.images.lock import chosen

    facts = _store(engine)
    for image in chosen(_read(path), names):
        identity = pinned_image(facts, image, "", partial(echo, err=True), pull=True)
        echo(f"{image.name}: {identity.reference} is {identity.id} in {facts.name}")


@images.command()
@click.argument("name", metavar="FOLDER")
@_LOCK
@_ENGINE
def build(name: str, path: Path | None, engine: str | None) -> None:
    """Build the image of a folder of containers/ and lock its id. The id is that of this platform."""
    from pybench.run.engines.oci import engine as oci
    from pybench.run.images.registry import build_image, lock_diff, with_image

    before, facts = _read(path), _store(engine)
    build_here = partial(oci.build_image, facts, notify=partial(echo, err=True))
    after = with_image(before, build_image(before, name, facts.name, build_here))
    echo(lock_diff(before, after) or "nothing changes\n", nl=False)
    _write(after)


def _read(path: Path | None) -> ImageLock:
    from pybench.run.images.lock import default_lock, read_lock

    return read_lock(path or default_lock())


def _write(lock: ImageLock) -> None:
    from pybench.machine.disk import disk_error
    from pybench.run.images.lock import write_lock

    with disk_error(Path(lock.path).parent, "the lock is unchanged", " run the command again"):
        write_lock(lock)


def _store(name: str | None) -> EngineFacts:
    """The engine called ``name``, or the first that can be used and has a store of images."""
    stores, reasons = _stores((name,) if name else CONTAINER_ENGINES)
    if not stores:
        raise MachineError(f"no engine can be used: {'; '.join(reasons)}")
    return stores[0]


def _stores(names: Sequence[str]) -> tuple[list[EngineFacts], list[str]]:
    """Those of the engines ``names`` that have a store of images and can be used, and why the others can't."""
    from pybench.run.engines.base import get_engine
    from pybench.run.engines.oci.engine import OciEngine

    pairs = [(engine, engine.find()) for engine in map(get_engine, names)]
    stores = [facts for engine, facts in pairs if not facts.reason and isinstance(engine, OciEngine)]
    return stores, [facts.reason or f"{facts.name} has no store of images" for _, facts in pairs if facts not in stores]
