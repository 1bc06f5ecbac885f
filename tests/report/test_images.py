"""The image lock as a table."""

from __future__ import annotations

from dataclasses import replace

from pybench.cli.images import lock_text
from pybench.model.container import PlatformDigests
from pybench.run.images.lock import default_lock, read_lock


def test_a_lock_steers_no_terminal() -> None:
    """Somebody else's lock may hold escapes."""
    lock = read_lock(default_lock())
    evil = replace(lock.images[0], repository="a\x1b[31m\x9b\u202e", verified_by="b\n\x07")
    text = lock_text(replace(lock, images=(evil,)), "linux/amd64", {})
    assert len(text.splitlines()) == 3
    assert text.replace("\n", "").isprintable()


def test_an_image_fits_80_columns() -> None:
    """Purpose, tag and digest are each whole; an image locked by a build has its id."""
    lock = read_lock(default_lock())
    image = lock.images[0]
    digest = image.references("linux/amd64")[0].rpartition("@")[2]
    lines = lock_text(lock, "linux/amd64", {image.name: ("docker", "podman")}).splitlines()
    assert lines[:3] == [
        f"{image.name}  for vllm, torch on cuda; unverified; in docker, podman",
        f"  {image.repository}:{image.tag}",
        f"  {digest}",
    ]
    assert max(map(len, lines)) <= 80
    built = replace(image, index_digest=None, platforms={"linux/amd64": PlatformDigests(config="sha256:1")})
    assert lock_text(replace(lock, images=(built,)), "linux/amd64", {}).splitlines()[2] == "  sha256:1"
    assert (
        lock_text(replace(lock, images=(built,)), "linux/arm64", {}).splitlines()[2] == "  not locked for linux/arm64"
    )
