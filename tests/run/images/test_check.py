"""The lock against a registry whose answers are known."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from pybench.model.container import ImageLock, LockedImage, PlatformDigests
from pybench.model.errors import MachineError, UsageError
from pybench.run.images.lock import chosen
from pybench.run.images.registry import (
    RegistryManifest,
    disagreements,
    fetch_manifest,
    lock_diff,
    resolved,
    with_image,
)
from tests.programs import shell_program

INDEX, AMD, ARM, CONFIG = (f"sha256:{letter * 64}" for letter in "1234")
IMAGE = LockedImage(
    name="one",
    repository="r/one",
    tag="v1",
    backends=("torch",),
    platforms={"linux/amd64": PlatformDigests(manifest=AMD)},
    index_digest=INDEX,
)
LOCK = ImageLock(path="containers/images.toml", images=(IMAGE,))
SERVED = {
    f"r/one@{INDEX}": RegistryManifest(digest=INDEX, platforms={"linux/amd64": AMD, "linux/arm64": ARM}, config=None),
    f"r/one@{AMD}": RegistryManifest(digest=AMD, platforms={}, config=CONFIG),
    f"r/one@{ARM}": RegistryManifest(digest=ARM, platforms={}, config=CONFIG),
}


def test_what_is_served_as_locked_agrees() -> None:
    """Both digests are asked for."""
    assert disagreements(IMAGE, SERVED.__getitem__) == []


@pytest.mark.parametrize(
    ("locked", "says"),
    [
        (PlatformDigests(manifest=INDEX), f"linux/amd64 is {AMD}, locked as {INDEX}"),
        (PlatformDigests(manifest=AMD, config=ARM), f"linux/amd64's configuration is {CONFIG}, locked as {ARM}"),
    ],
)
def test_disagreements_are_told_with_both_digests(locked: PlatformDigests, says: str) -> None:
    """The usual mistake is the index's digest in a platform's place."""
    assert disagreements(replace(IMAGE, platforms={"linux/amd64": locked}), SERVED.__getitem__) == [says]


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (
            'level=fatal msg="pinging r: Get \\"https://r/v2/\\": dial tcp: lookup r on 10.0.0.1:53: no such host"',
            "lookup r on 10.0.0.1:53: no such host",
        ),
        (
            'time="2026-11-29T20:48:39Z" level=fatal msg="pinging r: Get \\"https://r/v2/\\": EOF"',
            'Get "https://r/v2/": EOF',
        ),
        ("Error: fetching manifest r/one:v1: manifest unknown", "fetching manifest r/one:v1: manifest unknown"),
        ("denied", "denied"),
    ],
)
def test_a_registry_that_is_not_read_has_its_cause_and_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str, cause: str
) -> None:
    """The end of the tool's chain of causes, without its log's marks."""
    shell_program(tmp_path / "skopeo", f"cat >&2 <<'END'\n{error}\nEND\nexit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    step = "check the network (HTTPS_PROXY), the image's name, and the login of skopeo"
    with pytest.raises(MachineError) as refused:
        fetch_manifest("skopeo", "r/one:v1")
    assert str(refused.value) == f"skopeo can't read r/one:v1: {cause}; {step}"


def test_a_registry_that_serves_something_else_for_a_digest() -> None:
    """Its bytes don't have the digest that was asked for."""
    lying = {**SERVED, f"r/one@{INDEX}": replace(SERVED[f"r/one@{INDEX}"], digest=ARM)}
    assert disagreements(IMAGE, lying.__getitem__) == [f"the index is {ARM}, locked as {INDEX}"]


def test_a_tag_is_resolved_to_every_platform() -> None:
    """With the configuration that engines call the image's id."""
    found = resolved(IMAGE, {**SERVED, "r/one:v1": SERVED[f"r/one@{INDEX}"]}.__getitem__, "crane")
    assert found.index_digest == INDEX
    assert found.platforms["linux/arm64"] == PlatformDigests(manifest=ARM, config=CONFIG)
    assert found.verified_by == "crane"


def test_a_single_image_has_no_index() -> None:
    """Its tag means the platform that the lock says."""
    found = resolved(IMAGE, {"r/one:v1": SERVED[f"r/one@{AMD}"]}.__getitem__, "crane")
    assert found.index_digest is None
    assert found.platforms == {"linux/amd64": PlatformDigests(manifest=AMD, config=CONFIG)}


def test_the_diff_shows_what_changes() -> None:
    """And is empty where nothing does."""
    after = with_image(LOCK, replace(IMAGE, tag="v2"))
    assert '-tag = "v1"\n+tag = "v2"\n' in lock_diff(LOCK, after)
    assert lock_diff(LOCK, with_image(LOCK, IMAGE)) == ""
    assert [image.name for image in with_image(LOCK, replace(IMAGE, name="two")).images] == ["one", "two"]


def test_an_unknown_name_lists_the_known() -> None:
    """No name means all."""
    assert chosen(LOCK, ()) == (IMAGE,)
    with pytest.raises(UsageError, match="has no image 'two'; it has one"):
        chosen(LOCK, ("two",))
