"""Values that tests of several rooms begin with; a test replaces the fields that it is about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pybench.files.shipped import load_models
from pybench.files.suite.file import read_suite
from pybench.model.container import ImageIdentity
from pybench.model.decoder_shape import Architecture, DecoderShape
from pybench.model.errors import FileError
from pybench.model.machine import GpuInfo, Host, Machine, Software
from pybench.model.manifest import Manifest, Provenance
from pybench.model.record import Record
from pybench.model.results import (
    CheckResult,
    ComparisonResult,
    Estimate,
    NodeCheck,
    PointResult,
    Results,
    ScalingResult,
)
from pybench.model.suite import Effort, Plan, Point, Suite
from pybench.model.wire import Header
from pybench.model.workloads.train import Train
from pybench.run.images.lock import this_platform

NO_DRIVER = ("PYBENCH_NVML_LIBRARY", "/nonexistent/libnvidia-ml.so.1")
"""Environment variable and value that hide this machine's GPUs."""
GEMMA_4B = {
    "hidden_size": 2560,
    "intermediate_size": 10240,
    "model_type": "gemma3_text",
    "num_hidden_layers": 34,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    "sliding_window": 1024,
}
"""As google/gemma-3-4b-it publishes its text model."""

H200 = GpuInfo(
    index=0,
    uuid="GPU-0",
    name="NVIDIA H200",
    vram_gib=139.7,
    pci_bus_id=None,
    compute_capability="9.0",
    power_limit_w=700.0,
    power_limit_default_w=700.0,
    sm_clock_max_hz=None,
    memory_clock_max_hz=None,
    ecc_enabled=True,
    mig_enabled=None,
    persistence_enabled=True,
    pcie_generation=5,
    pcie_width=16,
    num_nvlinks=18,
)
MACHINE = Machine(
    kind="h200",
    fabric="nvlink",
    gpu_count=1,
    gpu_names=("NVIDIA H200",),
    gpu_vram_gib=(139.7,),
    gpus=(H200,),
    gpu_reason=None,
    topology=(("X",),),
    driver="580.1",
    cuda_driver="13.0",
    cpu_model="A CPU",
    cpu_cores=8,
    numa_nodes=1,
    memory_bytes=2**36,
    kernel="6.1",
    operating_system="Debian",
    python="3.11.2",
    packages={"torch": "2.9", "numpy": "2.0"},
    git_commit="abc",
    git_dirty=False,
)
HOST = Host(
    name="a",
    machine=MACHINE,
    boot_id="boot-a",
    time_offset_ns=0,
    pybench_version="1.0",
    worker_sha256="f00d" * 16,
    software=Software(python="3.12.1", packages={"torch": "2.11"}),
)
IMAGE = ImageIdentity(
    backend="torch",
    name="torch",
    reference="",
    id="",
    digests=(),
    platform="linux/amd64",
    labels={},
    python=None,
    interpreter="python3",
    entrypoint="replace",
    pinned=True,
)
MANIFEST = Manifest(
    run_id="r",
    created_utc="2026-01-01T00:00:00+00:00",
    pybench_version="0",
    suite=Suite(name="s", description="", benchmarks=()),
    plan=Plan(points=(), skips=()),
    device="cuda",
    machine=MACHINE,
    fingerprint="f",
    tables={},
    worker_sha256="",
    engine="none",
)
RECORD = Record(
    point_id="p",
    point_digest="",
    attempt=1,
    started_utc="2026-01-01T00:00:00+00:00",
    duration_s=1.0,
    startup_s=None,
    ranks=(),
    failure=None,
    energy=None,
    energy_reason=None,
    log="",
    trace=None,
    argv=(),
)
HEADER = Header(
    rank=0,
    world_size=1,
    pid=1,
    boot_id="b",
    time_offset_ns=0,
    python="3.12.1",
    packages={},
    device="cpu",
    device_name="cpu",
)
"""The only rank, on a CPU."""

SCALING = ScalingResult(
    benchmark="decode",
    metric="output_tokens_per_s",
    scaling="strong",
    along="tensor_parallel",
    group={},
    count=2,
    baseline_count=1,
    point_id="p2",
    baseline_id="p1",
    speedup=None,
    speedup_low=None,
    speedup_high=None,
    efficiency=None,
    expected=None,
    verdict="missing",
    reason="",
)
"""A speedup that was not measured."""

CHECK = CheckResult(
    benchmark="decode",
    metric="ttft_s",
    point_id="p2",
    value=None,
    minimum=None,
    maximum=1.0,
    verdict="missing",
    reason="",
)
"""A metric that was not measured, and must be at most 1 s."""

COMPARISON = ComparisonResult(
    benchmark="decode",
    metric="energy_j_per_output_token",
    order="below",
    point_id="p2",
    other_id="p4",
    ratio=None,
    low=None,
    high=None,
    verdict="missing",
    reason="",
)
"""Two points that were not measured."""

NODE_CHECK = NodeCheck(
    name="pcie", subject="all GPUs", point_id=None, value=None, limit=None, unit="fraction", verdict="pass", reason=""
)
"""A check of the whole node, without a figure."""

POINT_RESULT = PointResult(
    id="p",
    benchmark="decode",
    axes={},
    status="ok",
    reason=None,
    num_gpus=1,
    attempts=3,
    failed_attempts=0,
    metrics={},
    energy_by_gpu_j={},
)
"""Measured three times, without a figure."""

PROVENANCE = Provenance(
    created_utc="2026-11-21T08:15:00+00:00",
    pybench_version="0.1.0",
    engine="none",
    containment=None,
    gpu_names=(),
    driver=None,
    worker_driver=None,
    forward_compatible=None,
    cpu_model=None,
    kernel="6.1",
    packages={},
)
"""A machine without GPUs."""

RESULTS = Results(
    run_id="run",
    suite="suite",
    description="",
    profile=None,
    machine="cpu",
    fingerprint="",
    provenance=PROVENANCE,
    verdict="missing",
    reason="nothing was measured",
    points=(),
    scaling=(),
    checks=(),
)
"""A run that shows nothing."""

DECODER = DecoderShape(hidden=8, intermediate=16, layers=2, heads=4, key_value_heads=2, head_width=2, vocabulary=32)
"""Small enough to count by hand."""

TINY: Architecture = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 128,
}
"""A CPU runs it in milliseconds."""


def estimate(value: float, unit: str = "", low: float | None = None, high: float | None = None) -> Estimate:
    """A metric with its interval, where it has one."""
    return Estimate(value=value, low=low, high=high, unit=unit)


def training_over_hosts(*, before: str = "", behind: str = "", **settings: int) -> str:
    """TOML of a suite "hosts" with a benchmark "train", which takes CPUs a second.

    Text ``before`` the benchmark, and axes ``behind`` its settings: without any, its ``nodes`` are two.
    """
    usual = {"attempts": 1, "steps": 3, "time_limit_s": 60, **({} if behind else {"nodes": 2})}
    lines = "\n".join(f"{key} = {value}" for key, value in {**usual, **settings}.items())
    return f"""schema = 1
name = "hosts"
description = "a training over hosts"
{before}
[[benchmark]]
name = "train"
workload = "train"
backend = "torch"
model = "llama-tiny"
dtype = "float32"
sequence_tokens = 16
global_batch_size = 8
{lines}
{behind}
"""


def suite_problems(tmp_path: Path, text: str) -> str:
    """The problems of a suite with this text."""
    path = tmp_path / "s.toml"
    path.write_text(text)
    try:
        read_suite(path, profile=None, machine_kind="cpu")
    except FileError as error:
        return str(error)
    return ""


def training_point(model: str, **options: Any) -> Point:
    """Training of a shipped model, with ``options``: by default of one sample, all layers recomputed."""
    usual: dict[str, Any] = {"batch_size_per_gpu": 1, "sequence_tokens": 2048, "activation_checkpointing": "full"}
    settings = Train(backend="torch", model=model, **{**usual, **options})
    shape = load_models()[model]
    return Point(id="p", benchmark="b", axes={}, settings=settings, effort=Effort(), architecture=shape)


def with_settings(point: Point, **settings: Any) -> Point:
    """Replace some of a point's settings, of whichever workload."""
    return replace(point, settings=replace(point.settings, **settings))


def with_attempts(point: Point, attempts: int) -> Point:
    """The point with so many attempts wanted."""
    return replace(point, effort=replace(point.effort, attempts=attempts))


def decode_benchmark(*, prompt_tokens: int, output_tokens: int, attempts: int, steps: int) -> str:
    """TOML of a benchmark "decode" that takes a CPU seconds; more of its settings may follow."""
    return f"""[[benchmark]]
name = "decode"
workload = "generate"
backend = "torch"
model = "llama-tiny"
dtype = "float32"
batch_size = 1
prompt_tokens = {prompt_tokens}
output_tokens = {output_tokens}
attempts = {attempts}
steps = {steps}
"""


def image_lock_text(manifest: str) -> str:
    """A lock of one image of a registry that serves torch on the CPU, by its manifest's digest."""
    return f"""
schema = 1

[[image]]
name = "tested"
repository = "registry.example/tested"
tag = "1"
backends = ["torch"]
device = "cpu"
platforms."{this_platform()}" = {{ manifest = "{manifest}" }}
"""
