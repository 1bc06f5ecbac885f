"""The lock against a real registry on this machine: push, lock, verify, pull by digest."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pybench.cli.main import main
from pybench.run.images.lock import read_lock, this_platform
from tests.containers.boxed_engine import TAG, Boxed, engines_that_hold

pytestmark = pytest.mark.timeout(1200)  # another session may have the engines first


def pybench(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_lock_verify_and_pull_by_digest(boxed: Boxed, registry: str, tmp_path: Path) -> None:
    """A wrong digest is found out, `lock` shows and writes the right one, and it is pulled by that."""
    lock = tmp_path / "images.toml"
    false = "sha256:" + "0123456789abcdef" * 3 + "fedcba9876543210"
    lock.write_text(
        f"""schema = 1
[[image]]
name = "test"
repository = "{registry}/pybench/test"
tag = "1"
backends = ["torch"]
device = "cpu"
platforms."{this_platform()}" = {{ manifest = "{false}" }}
""",
        encoding="utf-8",
    )
    refused = pybench("images", "verify", "--lock", lock)
    assert refused.exit_code == 3, refused.output
    assert "can't read" in refused.output
    absent = pybench("images", "pull", "--lock", lock, "--engine", boxed.name)
    assert absent.exit_code == 3, absent.output
    assert "can't pull" in absent.output

    dry = pybench("images", "lock", "--dry-run", "--lock", lock)
    assert dry.exit_code == 0, dry.output
    assert false in dry.output
    assert read_lock(lock).images[0].platforms[this_platform()].manifest == false
    assert pybench("images", "lock", "--lock", lock).exit_code == 0
    (image,) = read_lock(lock).images
    own = image.platforms[this_platform()]
    assert own.config == boxed.image_id
    assert own.manifest != false
    assert image.verified_by == "skopeo"
    assert pybench("images", "verify", "--lock", lock).exit_code == 0

    subprocess.run([boxed.name, "image", "rm", "--force", boxed.image_id], capture_output=True, check=True)
    pulled = pybench("images", "pull", "test", "--lock", lock, "--engine", boxed.name)
    assert pulled.exit_code == 0, pulled.output
    assert f"{registry}/pybench/test@{own.manifest} is {boxed.image_id} in {boxed.name}" in pulled.output
    subprocess.run([boxed.name, "tag", boxed.image_id, TAG], check=True)
    assert boxed.name in engines_that_hold("test", pybench("images", "list", "--lock", lock).output)
