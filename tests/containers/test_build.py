"""An image of one's own, built without a network by a real engine: locked by its id, and what a suite runs in."""

from __future__ import annotations

import ensurepip
import hashlib
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pybench.cli.main import main
from pybench.files.run.folder import RunFolder
from pybench.run.images.lock import read_lock, this_platform
from pybench.run.images.registry import fetch_manifest
from tests.containers.boxed_engine import Boxed, engines_that_hold, inside, job, lock_text, quick_packages, suite_text
from tests.containers.root_image import INTERPRETER, LABELS

pytestmark = pytest.mark.timeout(1200)  # another session may have the engines first

DOCKERFILE = """\
FROM {base}
COPY wheels /wheels
COPY requirements.txt /wheels/
RUN ["{python}", "/wheels/{pip}/pip", "install", "--no-index", "--find-links=/wheels", "--require-hashes", \\
     "--root-user-action=ignore", "--target=/opt/addition", "-r", "/wheels/requirements.txt"]
"""


def pybench(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def write_wheel(folder: Path) -> Path:
    """A package of one constant."""
    path = folder / "addition-1.0-py3-none-any.whl"
    about = "addition-1.0.dist-info"
    files = {
        "addition.py": "ANSWER = 42\n",
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: addition\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{about}/RECORD"))
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in {**files, f"{about}/RECORD": record}.items():
            wheel.writestr(name, text)
    return path


def images(engine: str) -> set[str]:
    """Ids of the test image and of all that is built on it: others have none of its label."""
    ((name, value),) = LABELS.items()
    ours = ("--filter", f"label={name}={value}")
    argv = (engine, "image", "ls", "--all", "--quiet", "--no-trunc", *ours)
    return set(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split())


@pytest.fixture
def folder(boxed: Boxed, archive: tuple[Path, str], registry: str, tmp_path: Path) -> Iterator[Path]:
    """``containers/`` with a lock, and a recipe with a base served by digest and a local package."""
    recipe = tmp_path / "containers" / "addition"
    (recipe / "wheels").mkdir(parents=True)
    pip = next(Path(ensurepip.__file__).parent.glob("_bundled/pip-*.whl"))
    shutil.copy(pip, recipe / "wheels")
    wheel = write_wheel(recipe / "wheels")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (recipe / "requirements.txt").write_text(f"addition==1.0 --hash=sha256:{digest}\n")
    served = fetch_manifest("skopeo", f"{registry}/pybench/test:1")
    base = f"{registry}/pybench/test@{served.digest}"
    (recipe / "Dockerfile").write_text(DOCKERFILE.format(base=base, python=INTERPRETER, pip=pip.name))
    (tmp_path / "containers" / "images.toml").write_text(lock_text(archive[1]))
    before = images(boxed.name)
    yield tmp_path / "containers"
    for image in images(boxed.name) - before:  # also what a failed build leaves as its cache
        subprocess.run([boxed.name, "image", "rm", "--force", image], capture_output=True, check=False)


def test_built_locked_and_run_in(boxed: Boxed, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is inside, the id in the lock, the base's digest untouched; a suite then asks for it by name."""
    monkeypatch.setenv("PYBENCH_NVML_LIBRARY", "/nonexistent/libnvidia-ml.so.1")
    lock = folder / "images.toml"
    built = pybench("images", "build", "addition", "--lock", lock, "--engine", boxed.name)
    assert built.exit_code == 0, built.output
    base, image = read_lock(lock).images
    assert base.platforms[this_platform()].config == boxed.image_id
    assert (image.name, image.dockerfile, image.verified_by) == ("addition", "addition", f"{boxed.name} build")
    digest = image.platforms[this_platform()].config
    assert digest not in {None, boxed.image_id}
    assert f'+config = "{digest}"' in built.output
    assert boxed.name in engines_that_hold("addition", pybench("images", "list", "--lock", lock).output)
    lock.write_text(lock.read_text().replace('"cuda"', '"cpu"'))
    suite = suite_text('image = "addition"', packages=quick_packages(tmp_path), ranks="[1]")
    (tmp_path / "boxed.toml").write_text(suite)
    ran = pybench(
        *("run", tmp_path / "boxed.toml", "--runs", tmp_path / "runs", "--engine", boxed.name, "--lock", lock)
    )
    assert ran.exit_code == 4, ran.output  # it expects nothing
    (record,) = RunFolder.open(next((tmp_path / "runs").iterdir())).journal.records()
    assert record.failure is None
    assert record.container is not None
    assert record.container.image_id == digest
    code = "import sys; sys.path.append('/opt/addition'); import addition; print(addition.ANSWER)"
    assert inside(boxed.launcher(lock=lock, image="addition"), job(tmp_path / "look"), code) == 42
    assert not boxed.containers()


def test_a_package_with_another_hash_is_not_built_in(boxed: Boxed, folder: Path) -> None:
    """The engine's words, exit 3, and a lock as it was."""
    requirements = folder / "addition" / "requirements.txt"
    requirements.write_text(f"addition==1.0 --hash=sha256:{hashlib.sha256(b'other').hexdigest()}\n")
    before = (folder / "images.toml").read_text()
    failed = pybench("images", "build", "addition", "--lock", folder / "images.toml", "--engine", boxed.name)
    assert failed.exit_code == 3, failed.output
    assert "DO NOT MATCH THE HASHES" in failed.output
    assert f"{boxed.name} can't build {folder / 'addition'}: " in failed.output
    assert (folder / "images.toml").read_text() == before
