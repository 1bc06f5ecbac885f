"""The provenance line."""

from __future__ import annotations

from dataclasses import replace

from pybench.model.results import Results
from pybench.report.run.view import sentence


def test_gpus_driver_and_packages(results: Results) -> None:
    """Equal GPUs are counted."""
    assert sentence(results.provenance) == (
        "2026-11-21T08:15:00+00:00, pybench 0.1.0, 4 x NVIDIA H200, driver 580.00, python 3.12.3, torch 2.11.0, "
        "in podman 4.3.1 with looser ulimit_memlock, image vllm-0.31.0 docker.io/vllm/vllm-openai@sha256:a4a4c0437bf7, "
        "NCCL_ALGO=Ring"
    )


def test_a_first_look_counts_the_variables(results: Results) -> None:
    """An engine sets twenty; they are listed on demand."""
    short = sentence(results.provenance, detail=False)
    assert short.endswith(", 1 tuning variable set (-v lists)")
    assert "NCCL_ALGO" not in short


def test_without_gpus_the_cpu_is_named(empty: Results) -> None:
    """Also when nobody knows it."""
    assert "unknown CPU, not containerised" in sentence(empty.provenance)
    assert "EPYC, not containerised" in sentence(replace(empty.provenance, cpu_model="EPYC"))


def test_an_unpinned_image_is_called_so(results: Results) -> None:
    """Nobody should take its figures for those of a known image."""
    assert results.provenance.containment is not None
    unpinned = replace(results.provenance.containment, engine_version=None, pinned=False, relaxations=())
    told = sentence(replace(results.provenance, containment=unpinned))
    assert told.endswith(
        ", in podman, unpinned image vllm-0.31.0 docker.io/vllm/vllm-openai@sha256:a4a4c0437bf7, NCCL_ALGO=Ring"
    )


def test_what_workers_saw_of_the_driver(results: Results) -> None:
    """Told where it differs from the host's: another version, or a libcuda from the image."""
    provenance = replace(results.provenance, worker_driver="570.86", forward_compatible=True)
    assert ", driver 580.00 (workers saw 570.86) with forward compatibility, " in sentence(provenance)
    assert ", driver 570.86, " in sentence(replace(provenance, driver=None, forward_compatible=None))
