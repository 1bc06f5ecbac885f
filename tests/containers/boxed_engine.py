"""One real engine with the test image in it, and the files a run needs."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pybench.model.container import ContainerRequest
from pybench.model.machine import Place
from pybench.run.engines.base import EngineOptions, Launch, LaunchRequirements
from pybench.run.engines.choice import choose_launcher
from pybench.run.engines.oci.launcher import OWNER_LABEL, REMOVE, OciLauncher, prepare_files
from pybench.run.engines.stage import stage_worker
from pybench.run.images.lock import this_platform
from tests.builders import decode_benchmark, training_over_hosts
from tests.containers.root_image import SITE

TAG = "localhost/pybench-test:1"
QUICK_WORKER = Path(__file__).parents[1] / "cli" / "quick_worker.py"


@dataclass(frozen=True)
class Boxed:
    """One engine with the image in its store."""

    name: str
    lock: Path
    image_id: str

    def launcher(self, request: ContainerRequest | None = None, **options: object) -> OciLauncher:
        """A launcher as ``pybench run`` would choose it."""
        needs = LaunchRequirements(backends=("torch",), device="cpu", request=request or ContainerRequest())
        chosen = choose_launcher(
            EngineOptions(engine=self.name, **{"lock": self.lock, **options}),  # type: ignore[arg-type]
            needs,
            notify=lambda _text: None,
        )
        return cast("OciLauncher", chosen)

    def containers(self) -> list[str]:
        """Ids of all containers that pybench left in this engine."""
        argv = (self.name, "ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={OWNER_LABEL}")
        listed = subprocess.run(argv, capture_output=True, text=True, check=True)
        return listed.stdout.split()


def engines_that_hold(image: str, listed: str) -> list[str]:
    """The engines named in an image's line of ``pybench images list``, of those that may hold it for other tests."""
    (line,) = (line for line in listed.splitlines() if line.startswith(f"{image} "))
    return line.rpartition("; in ")[2].split(", ")


def job(folder: Path, number: int = 1) -> Launch:
    """An attempt to start by hand: a staged worker and an empty exchange folder."""
    exchange = folder / "attempts" / f"drill.{number}" / "exchange"
    exchange.mkdir(parents=True)
    if not (folder / "worker").exists():
        stage_worker(folder / "worker")
    return Launch(
        stage=folder / "worker",
        exchange=exchange,
        backend="torch",
        num_processes=1,
        places=(Place(),),
        token=f"drill/{secrets.token_hex(8)}",
        host_environment=dict(os.environ),
    )


def inside(launcher: OciLauncher, task: Launch, code: str) -> Any:
    """What ``code`` prints as JSON, run where a worker would run."""
    prepare_files(launcher, task)
    try:
        done = subprocess.run(
            launcher.start_argv(task, "-I", "-B", "-c", code), capture_output=True, text=True, check=False
        )
    finally:
        subprocess.run(launcher.container_argv(task, *REMOVE), capture_output=True, check=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def site_packages() -> Path:
    """Folder of the packages that the torch backend needs."""
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parents[1]


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


def quick_packages(folder: Path, module: str = QUICK_WORKER.read_text(encoding="utf-8")) -> Path:
    """Packages for a suite to mount: the worker is ``module`` from the moment at which it imports torch.

    The quick worker, of one rank, computes nothing: what is tested is the container around it.
    """
    package = folder / "packages" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"{module}\nos._exit(0)\n", encoding="utf-8")
    return package.parent


def suite_text(container: str = "", *, packages: Path | None = None, attempts: int = 1, ranks: str = "[1, 2]") -> str:
    """A real workload that takes seconds, its packages mounted."""
    return f"""
schema = 1
name = "boxed"

[container]
mounts = [{{ source = "{packages or site_packages()}", target = "{SITE}" }}]
{container}

{decode_benchmark(prompt_tokens=8, output_tokens=4, attempts=attempts, steps=3)}max_attempts = {attempts}
max_warmup_steps = 2
time_limit_s = 240

[benchmark.axes]
tensor_parallel = {ranks}
"""


def write_training(folder: Path, nodes: int) -> Path:
    """A suite of a real training of two ranks over ``nodes`` hosts, its packages mounted."""
    path = folder / "hosts.toml"
    mounts = f'[container]\nmounts = [{{ source = "{site_packages()}", target = "{SITE}" }}]\n'
    text = training_over_hosts(
        data_parallel=2, before=mounts, nodes=nodes, max_attempts=1, max_warmup_steps=2, time_limit_s=400
    )
    path.write_text(text, encoding="utf-8")
    return path
