"""Real engines, and an image for them that is made here."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from pybench.launch.oci import OciLauncher, listing_argv
from pybench.machine.engines import find_engine, this_platform
from pybench.model.container import ContainerRequest, EngineName
from pybench.runner.engine_choice import Asked, EngineRequest, choose_launcher

sys.path.insert(0, str(Path(__file__).parent))
from root_image import SITE, write_image

REQUIRED = "PYBENCH_REQUIRE_ENGINES"
"""Comma-separated engines whose absence is a failure instead of a skip; CI sets it."""
TAG = "localhost/pybench-test:1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Containers of one engine are counted and swept: its tests stay in one process."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("containers"))


@dataclass(frozen=True)
class Boxed:
    """One engine with the image in its store."""

    name: str
    lock: Path
    image_id: str

    def launcher(self, request: ContainerRequest | None = None, **wish: object) -> OciLauncher:
        """A launcher as ``pybench run`` would choose it."""
        asked = Asked(backends=("torch",), device="cpu", request=request or ContainerRequest())
        chosen = choose_launcher(
            EngineRequest(engine=self.name, **{"lock": self.lock, **wish}),  # type: ignore[arg-type]
            asked,
            tell=lambda _text: None,
        )
        return cast("OciLauncher", chosen)

    def containers(self) -> list[str]:
        """Ids of all containers that pybench left in this engine."""
        listed = subprocess.run(listing_argv((self.name,)), capture_output=True, text=True, check=True)
        return listed.stdout.split()


def site_packages() -> Path:
    """Folder of the packages that the torch backend needs."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        pytest.skip("torch is not installed")
    return Path(found.origin).parents[1]


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The image as a file, and its id."""
    path = tmp_path_factory.mktemp("image") / "image.tar"
    packages = site_packages()
    libraries = [*packages.glob("torch/lib/*.so*"), *packages.glob("numpy.libs/*.so*")]
    return path, write_image(path, TAG, sorted(libraries))


@pytest.fixture(scope="session", params=["docker", "podman"])
def boxed(
    request: pytest.FixtureRequest, archive: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Boxed]:
    """Each engine in turn."""
    name: EngineName = request.param
    reason = find_engine(name).reason
    if reason:
        if name in os.environ.get(REQUIRED, "").split(","):
            pytest.fail(f"{REQUIRED} names {name}, but {reason}")
        pytest.skip(reason)
    path, image_id = archive
    subprocess.run([name, "load", "--input", str(path)], capture_output=True, check=True)
    lock = tmp_path_factory.mktemp("lock") / "images.toml"
    lock.write_text(lock_text(image_id), encoding="utf-8")
    yield Boxed(name, lock, image_id)
    subprocess.run([name, "image", "rm", "--force", image_id], capture_output=True, check=False)


def lock_text(image_id: str, name: str = "test") -> str:
    """A lock of one image that serves torch on the CPU."""
    return f"""
schema = 1

[[image]]
name = "{name}"
repository = "localhost/pybench-test"
tag = "1"
backends = ["torch"]
device = "cpu"
platforms."{this_platform()}" = {{ config = "{image_id}" }}
"""


def suite_text(container: str = "", *, attempts: int = 1, ranks: str = "[1, 2]") -> str:
    """A real workload that takes seconds, its packages mounted."""
    return f"""
schema = 1
name = "boxed"

[container]
mounts = [{{ source = "{site_packages()}", target = "{SITE}" }}]
{container}

[[benchmark]]
name = "decode"
workload = "generate"
backend = "torch"
model = "llama-tiny"
dtype = "float32"
batch_size = 1
prompt_tokens = 8
output_tokens = 4
attempts = {attempts}
max_attempts = {attempts}
steps = 3
time_limit_s = 240

[benchmark.axes]
tensor_parallel = {ranks}
"""
