"""``pybench images``: the lock of container images, against registries and this machine's engines."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pybench.model.container import EngineFacts
    from pybench.model.image import ImageLock

_LOCK = click.option("--lock", "path", type=click.Path(path_type=Path), metavar="FILE", help="Another lock file.")
_NAMES = click.argument("names", metavar="[IMAGE]...", nargs=-1)
_ENGINE = click.option("--engine", type=click.Choice(("docker", "podman")), help="Default: the first that answers.")


@click.group()
def images() -> None:
    """Look at, confirm and fetch the container images that suites run in."""


@images.command("list")
@_LOCK
def show(path: Path | None) -> None:
    """Print every locked image, and which engines here have it."""
    from pybench.machine.engines import find_engines, this_platform
    from pybench.report.images import render
    from pybench.runner.locked_images import present

    lock = _read(path)
    engines = [engine for engine in find_engines() if engine.reason is None]
    here = {image.name: present(image, engines) for image in lock.images}
    click.echo(render(lock, this_platform(), here), nl=False)


@images.command()
@_NAMES
@_LOCK
@click.option("--write", is_flag=True, help="Mark in the lock what the registry confirmed.")
@click.pass_context
def verify(ctx: click.Context, names: tuple[str, ...], path: Path | None, write: bool) -> None:
    """Ask the registry whether it serves the locked digests. Exits 1 when it serves others."""
    from pybench.machine.registry import ask_registry, registry_tool
    from pybench.runner.registry_check import chosen, confirmed, disagreements, with_image

    lock = _read(path)
    tool = registry_tool()
    wrong = False
    for image in chosen(lock, names):
        found = disagreements(image, partial(ask_registry, tool))
        click.echo(f"{image.name}: {'; '.join(found) or f'as locked, says {tool}'}")
        wrong = wrong or bool(found)
        if not found:
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
    """Resolve tags to digests, show the change, and write it to the lock."""
    from dataclasses import replace

    from pybench.machine.registry import ask_registry, registry_tool
    from pybench.model.errors import UsageError
    from pybench.runner.registry_check import chosen, lock_diff, resolved, with_image

    if tag and len(names) != 1:
        raise UsageError("--tag moves one image; name it")
    before = after = _read(path)
    tool = registry_tool()
    for image in chosen(before, names):
        after = with_image(after, resolved(replace(image, tag=tag or image.tag), partial(ask_registry, tool), tool))
    click.echo(lock_diff(before, after) or "nothing changes\n", nl=False)
    if not dry_run:
        _write(after)


@images.command()
@_NAMES
@_LOCK
@_ENGINE
def pull(names: tuple[str, ...], path: Path | None, engine: str | None) -> None:
    """Fetch locked images by digest."""
    from pybench.runner.locked_images import pinned_image
    from pybench.runner.registry_check import chosen

    facts = _engine(engine)
    for image in chosen(_read(path), names):
        found = pinned_image(facts, image, "", partial(click.echo, err=True), pull=True)
        click.echo(f"{image.name}: {found.reference} is {found.id} in {facts.name}")


@images.command()
@click.argument("name", metavar="FOLDER")
@_LOCK
@_ENGINE
def build(name: str, path: Path | None, engine: str | None) -> None:
    """Build the image of a folder of containers/ and lock its id on this platform."""
    from pybench.runner.image_build import build_image
    from pybench.runner.registry_check import lock_diff, with_image

    before = _read(path)
    after = with_image(before, build_image(_engine(engine), before, name, partial(click.echo, err=True)))
    click.echo(lock_diff(before, after) or "nothing changes\n", nl=False)
    _write(after)


def _read(path: Path | None) -> ImageLock:
    from pybench.store.image_lock import default_lock, read_lock

    return read_lock(path or default_lock())


def _write(lock: ImageLock) -> None:
    from pybench.machine.disk import full_disk_told
    from pybench.store.image_lock import write_lock

    with full_disk_told(Path(lock.path).parent, "the lock is as it was: free space there, then say the same again"):
        write_lock(lock)


def _engine(name: str | None) -> EngineFacts:
    from pybench.machine.engines import find_engine, find_engines
    from pybench.model.errors import MachineError

    found: Sequence[EngineFacts] = (
        (find_engine("podman" if name == "podman" else "docker"),) if name else find_engines()
    )
    usable = [facts for facts in found if facts.reason is None and facts.name != "apptainer"]
    if not usable:
        raise MachineError(f"no engine can be used: {'; '.join(facts.reason or facts.name for facts in found)}")
    return usable[0]
