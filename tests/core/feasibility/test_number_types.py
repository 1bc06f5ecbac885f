"""Types that the GPUs of a plan do not compute in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pybench.core.feasibility import infeasible
from pybench.core.gpu_models import with_gpus
from pybench.model.machine import Devices
from pybench.model.suite import Effort, Point
from pybench.model.workloads.evaluate import Evaluate
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.node import Burn, Matmul
from pybench.model.workloads.settings import Settings
from pybench.model.workloads.train import Train
from tests.builders import GEMMA_4B, H200, MACHINE, TINY

V100, T4, A100, ADA = ((7, 0), (7, 5), (8, 0), (8, 9))
SIZES: dict[str, Any] = {"model": "m", "batch_size": 2, "prompt_tokens": 2, "output_tokens": 2}
TRAIN = Train(backend="torch", model="m", global_batch_size=2, sequence_tokens=8)
GEMMA = {**TINY, **{key: value for key, value in GEMMA_4B.items() if "_size" not in key}, "head_dim": 16}


def reason(settings: Settings, capability: tuple[int, int] | None, architecture: Any = TINY) -> str | None:
    """The fault of the one type that the GPUs lack, without its kind."""
    point = Point(id="p", benchmark="p", axes={}, settings=settings, effort=Effort(), architecture=architecture)  # type: ignore[arg-type]
    found = [*infeasible(point, Devices("cuda", 8, compute_capability=capability))]
    assert [kind for kind, _ in found] == ["number_type"] * len(found)
    return found[0][1] if found else None


def test_generation_on_a_v100_takes_float16() -> None:
    """The default is bfloat16, which it converts; the other types of a model it has, and an A100 has all."""
    settings = Generate(backend="torch", **SIZES)
    for each in (settings, Evaluate(backend="torch", method="loss", **SIZES)):
        found = str(reason(each, V100))
        assert [fact for fact in ("'bfloat16'", "8.0", "7.0", "set dtype = 'float16'") if fact not in found] == []
    for change in ("float16", "float32"):
        assert reason(replace(settings, dtype=change), V100) is None
    for there in (A100, None):
        assert reason(settings, there) is None


def test_training_takes_float32() -> None:
    """AdamW's epsilon is 0 in float16."""
    assert str(reason(TRAIN, T4)).endswith("found 7.5: set dtype = 'float32'")
    mixed = replace(TRAIN, strategy="fsdp", dtype="float32", mixed_precision="bfloat16")
    assert str(reason(mixed, T4)).endswith("found 7.5: remove mixed_precision")


def test_vllm_has_no_float16_for_gemma() -> None:
    """Neither as a remedy nor as a setting; the other backends compute it."""
    gemma = Generate(backend="vllm", **SIZES)
    assert str(reason(gemma, V100, GEMMA)).endswith("set dtype = 'float32'")
    half = replace(gemma, dtype="float16")
    assert "vllm has no float16 for gemma3_text" in str(reason(half, A100, GEMMA))
    assert reason(replace(half, backend="torch"), A100, GEMMA) is None


@pytest.mark.parametrize(
    ("settings", "capability", "remedy"),
    [
        (Matmul(backend="torch"), V100, "set precision = 'float16'"),
        (Matmul(backend="torch", precision="float8_e4m3fn"), A100, "set precision = 'bfloat16'"),
        (Matmul(backend="torch", precision="float8_e4m3fn"), T4, "set precision = 'float16'"),
        (Matmul(backend="torch", precision="float8_e4m3fn"), ADA, None),
        (Matmul(backend="torch", precision="tfloat32"), T4, "set precision = 'float32'"),
        (Burn(backend="torch"), V100, "set burn_precision = 'float16'"),
        (Burn(backend="torch", burn_precision="float32"), V100, None),
        (Generate(backend="vllm", dtype="float16", quantization="fp8", **SIZES), V100, "remove quantization"),
        (Generate(backend="vllm", quantization="fp8", **SIZES), A100, None),
    ],
)
def test_what_to_set_instead(settings: Settings, capability: tuple[int, int], remedy: str | None) -> None:
    """The remedy is the widest type that the capability has."""
    found = reason(settings, capability, TINY if isinstance(settings, Generate) else None)
    assert found is None if remedy is None else str(found).endswith(remedy)


def test_a_cpu_has_no_substitute_for_narrow_units() -> None:
    """It computes in bfloat16 by software."""
    points = [Matmul(backend="torch", precision=name) for name in ("bfloat16", "tfloat32", "float8_e4m3fn")]
    there = Devices("cpu", 2)
    made = [Point(id="p", benchmark="p", axes={}, settings=each, effort=Effort(), architecture=None) for each in points]
    found = [[kind for kind, _ in infeasible(point, there)] for point in made]
    assert found == [[], ["number_type"], ["number_type"]]


def test_a_machine_has_what_its_least_gpu_has() -> None:
    """Assumed GPUs have the table's value, others the driver's; unknown if a GPU reports nothing."""
    two = replace(MACHINE, gpus=(H200, replace(H200, compute_capability="7.0")))
    assert two.devices.compute_capability == V100
    for unknown in (None, "", "9", "a.b"):
        machine = replace(MACHINE, gpus=(H200, replace(H200, compute_capability=unknown)))
        assert machine.devices.compute_capability is None
    assert with_gpus(MACHINE, "v100-16gb", 2).devices.compute_capability == V100
    assert with_gpus(MACHINE, None, 4).devices.compute_capability == (9, 0)
    assert with_gpus(MACHINE, "48gb", 1).devices.compute_capability is None
