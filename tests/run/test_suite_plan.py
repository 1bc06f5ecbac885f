"""Backends that this machine lacks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import pytest

from pybench.core.plan import Required, left_out_list
from pybench.model.backend import BACKENDS, install
from pybench.model.container import ContainerSetup
from pybench.model.suite import Effort, Plan, Point
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.settings import BackendName
from pybench.model.workloads.train import Train
from pybench.run.engines.apptainer.engine import ApptainerLauncher
from pybench.run.engines.local import Local, missing_packages
from pybench.run.suite_plan import with_packages
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("run.suite_plan")


def _point(backend: BackendName) -> Point:
    settings = Generate(backend=backend, model="m", batch_size=1, prompt_tokens=1, output_tokens=2)
    axes: dict[str, Any] = {"backend": backend}
    return Point(id=backend, benchmark="b", axes=axes, settings=settings, effort=Effort(), architecture=None)


@pytest.fixture
def python(tmp_path: Path) -> str:
    """One that finds every package but vllm."""
    script = tmp_path / "python"
    found = ("torch", "transformers")
    answer = f"print(json.dumps([name for name in sys.argv[5:] if name not in {found}]))"
    lines = (f"#!{sys.executable}", "import json, sys", answer)
    script.write_text("\n".join(lines))
    script.chmod(0o755)
    return str(script)


def test_a_missing_backend_is_left_out_with_its_remedy(python: str) -> None:
    """The others stay; where it is required it is skipped, and so missing."""
    plan = with_packages(Plan(points=(_point("torch"), _point("vllm")), skips=()), Local(python))
    assert [point.id for point in plan.points] == ["torch"]
    (skip,) = plan.left_out
    assert (skip.kind, skip.reason.endswith(f": {BACKENDS['vllm'].remedy}")) == ("package", True)
    assert left_out_list(plan) == ("vllm (not installed)",)
    both = Plan(points=(_point("torch"), _point("vllm")), skips=())
    for required, benchmarks in ((Required(backends=frozenset({"vllm"})), ()), (Required(), ("b",))):
        plan = with_packages(both, Local(python), required, benchmarks)
        assert ([skip.id for skip in plan.skips], plan.left_out) == (["vllm"], ())


def test_a_missing_extra_leaves_out_the_points_that_ask_for_it(python: str) -> None:
    """Strategies and LoRA need extras; other trainings stay."""
    sizes: dict[str, Any] = {"backend": "torch", "model": "m", "global_batch_size": 1, "sequence_tokens": 1}
    trainings = {
        "ddp": Train(**sizes),
        "deepspeed": Train(**sizes, strategy="deepspeed"),
        "adapters": Train(**sizes, lora_rank=8),
        "tuned": Train(**sizes, strategy="torchtune"),
    }
    points = tuple(
        Point(id=name, benchmark="b", axes={}, settings=settings, effort=Effort(), architecture=None)
        for name, settings in trainings.items()
    )
    plan = with_packages(Plan(points=points, skips=()), Local(python))
    assert [point.id for point in plan.points] == ["ddp"]
    assert [(skip.kind, skip.lacks) for skip in plan.left_out] == [
        ("package", f"{name} (not installed)") for name in ("deepspeed", "train", "torchtune")
    ]
    assert "torchtune and torchao" in plan.left_out[2].reason
    assert plan.left_out[1].reason == SENTENCES["package"]
    assert plan.left_out[2].reason.endswith(install("torchtune"))


def test_an_image_brings_its_own() -> None:
    """Only this machine's Python can lack a package."""
    plan = Plan(points=(_point("vllm"),), skips=())
    launcher: Any = ApptainerLauncher(container=cast("ContainerSetup", None), files={})
    assert with_packages(plan, launcher) == plan


def test_packages_are_found_without_importing_them() -> None:
    """And an interpreter that does not start has nothing to say."""
    assert missing_packages(sys.executable, ("json", "no_such_package")) == ("no_such_package",)
    assert missing_packages("/no/such/python", ("json",)) == ()
