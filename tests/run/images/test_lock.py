"""The lock of images: refused files, and a round trip."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pybench.model.errors import FileError
from pybench.run.images.lock import default_lock, digest_problem, lock_text, read_lock, write_lock

GOOD = "sha256:a4a4c0437bf7240089da5f08aa370c4aee17ae5290f7a3b468825ee26c4c3a6b"
OTHER = "sha256:c1c9f6fd5c109ba7f0546a59f5b2f15fb87f64c77782e90a27b648b42a8e67c3"


def image(**changes: str) -> str:
    lines = {
        "name": '"one"',
        "repository": '"docker.io/a/b"',
        "tag": '"v1"',
        "backends": '["torch"]',
        "index_digest": f'"{OTHER}"',
        'platforms."linux/amd64"': f'{{ manifest = "{GOOD}" }}',
        **changes,
    }
    return "[[image]]\n" + "".join(f"{key} = {value}\n" for key, value in lines.items() if value)


def problems(folder: Path, *images: str) -> str:
    path = folder / "images.toml"
    path.write_text("schema = 1\n" + "\n".join(images), encoding="utf-8")
    with pytest.raises(FileError) as error:
        read_lock(path)
    return str(error.value)


def test_the_shipped_lock_is_valid_and_canonical() -> None:
    """No tag without a digest, no placeholder, and what `images lock` would write."""
    lock = read_lock(default_lock())
    assert lock.images
    assert default_lock().read_text(encoding="utf-8") == lock_text(lock)
    for locked in lock.images:
        assert locked.references("linux/amd64"), locked.name
        assert not any(locked.tag in name for name in locked.references("linux/amd64"))
        assert locked.source


def test_backends_find_their_image() -> None:
    """The first that serves; none for a CPU."""
    lock = read_lock(default_lock())
    found = lock.serving("vllm", "linux/amd64", "cuda")
    assert found is not None
    assert found.name == "vllm-0.31.0"
    assert lock.serving("vllm", "linux/amd64", "cpu") is None
    arm = lock.serving("vllm", "linux/arm64", "cuda")
    assert arm is not None  # by its index where the platform's own digest is unknown


@pytest.mark.parametrize(
    ("digest", "says"),
    [
        ("sha256:" + "0" * 64, "placeholder"),
        ("sha256:" + "deadbeef" * 8, "placeholder"),
        ("sha256:" + "0123456789abcdef" * 4, "placeholder"),
        ("sha256:" + "a" * 63, "64 lower-case"),
        (GOOD.upper(), "64 lower-case"),
        (GOOD + "\n", "64 lower-case"),
        ("v1.2", "64 lower-case"),
    ],
)
def test_no_false_digest(tmp_path: Path, digest: str, says: str) -> None:
    """In any of its three places."""
    quoted = '"' + digest.replace("\n", "\\n") + '"'
    assert says in problems(tmp_path, image(index_digest=quoted))
    assert says in problems(tmp_path, image(**{'platforms."linux/amd64"': f"{{ manifest = {quoted} }}"}))
    assert says in problems(tmp_path, image(**{'platforms."linux/amd64"': f"{{ config = {quoted} }}"}))


@settings(deadline=None)  # an example may meet a machine that stands still
@given(st.binary(min_size=1, max_size=64))
def test_no_real_digest_is_taken_for_a_placeholder(content: bytes) -> None:
    """Of whatever."""
    assert digest_problem(f"sha256:{hashlib.sha256(content).hexdigest()}") is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"index_digest": "", 'platforms."linux/amd64"': "{}"}, "without a digest"),
        ({"index_digest": f'"{GOOD}"'}, "an index and its platforms have one each"),
        ({"repository": '"docker.io/a/b:v1"'}, "repository"),
        ({"repository": '"a b"'}, "repository"),
        ({"repository": '"--privileged"'}, "repository"),
        ({"tag": '"$(id)"'}, "tag"),
        ({"name": '"../x"'}, "name"),
        ({"interpreter": '"/usr/bin/../sh"'}, "interpreter"),
        ({"entrypoint": '"both"'}, "entrypoint"),
        ({"device": '"tpu"'}, "device"),
        ({"minimum_driver": '"580 or so"'}, "minimum_driver"),
        ({"colour": '"red"'}, "unknown key"),
        ({'platforms."windows/amd64"': f'{{ manifest = "{GOOD}" }}', 'platforms."linux/amd64"': ""}, "windows"),
    ],
)
def test_refusals_name_the_place(tmp_path: Path, changes: dict[str, str], says: str) -> None:
    """File, line, image, key."""
    told = problems(tmp_path, image(**changes))
    assert says in told
    assert "images.toml:" in told


def test_names_and_digests_are_each_ones_own(tmp_path: Path) -> None:
    """Two images of one name, or one digest for two images."""
    told = problems(tmp_path, image(), image())
    assert "the name of an earlier image" in told
    assert "the digest of one index_digest" in told


def test_written_as_read(tmp_path: Path) -> None:
    """Every field survives."""
    path = tmp_path / "images.toml"
    text = image(
        interpreter='"/opt/torch/.venv/bin/python3"',
        cuda='"13.0"',
        minimum_driver='"580.65.06"',
        entrypoint='"keep"',
        device='"cpu"',
    )
    path.write_text("schema = 1\n" + text, encoding="utf-8")
    lock = read_lock(path)
    write_lock(lock)
    assert read_lock(path) == lock
    assert path.read_text(encoding="utf-8") == lock_text(lock)
