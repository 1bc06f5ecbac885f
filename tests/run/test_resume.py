"""Where a run may go on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pybench.model.errors import MachineError
from pybench.model.machine import Software
from pybench.model.manifest import Manifest
from pybench.model.suite import Plan, Suite
from pybench.run.prepare import check_machine, check_software
from tests.builders import MACHINE

RUN = Path("RUN")
BEGAN = replace(MACHINE, cpus=(0, 1, 2, 3))
SOFTWARE = Software(python="3.12.3", packages={"torch": "2.11.0", "peft": "0.21.0"})
MANIFEST = Manifest(
    run_id="run",
    created_utc="2026-11-22T08:00:00+00:00",
    pybench_version="0.1.0",
    suite=Suite(name="s", description="", benchmarks=()),
    plan=Plan(points=(), skips=()),
    device="cuda",
    machine=BEGAN,
    fingerprint="f",
    tables={},
    worker_sha256="",
    engine="none",
    environment={"NCCL_ALGO": "Ring"},
    software=SOFTWARE,
)


def refusal(check: Any, *arguments: Any) -> str:
    with pytest.raises(MachineError) as caught:
        check(RUN, MANIFEST, *arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_same_goes_on() -> None:
    """Also where a Python can't be read, which starting a worker then reports."""
    check_machine(RUN, MANIFEST, BEGAN)
    check_software(RUN, MANIFEST, SOFTWARE, {"NCCL_ALGO": "Ring"})
    check_software(RUN, MANIFEST, None, {"NCCL_ALGO": "Ring"})


def test_another_folder_of_compiled_code_is_no_other_software() -> None:
    """Each job has folders for compiled code and logs."""
    own = {"NCCL_ALGO": "Ring", "TRITON_CACHE_DIR": "/job/2/triton", "NCCL_DEBUG_FILE": "/job/2/nccl.log"}
    check_software(RUN, MANIFEST, SOFTWARE, own)


def test_another_set_of_cpus_names_both() -> None:
    """Also with an equal number of CPUs: they may be farther from the GPUs. The remedy is a command."""
    assert refusal(check_machine, replace(BEGAN, cpus=(4, 5, 6, 8))) == (
        "RUN: began on CPUs 0-3, would go on on CPUs 4-6,8; "
        "resume it under the first (taskset -c 0-3 pybench run --resume ...), or start a new run"
    )


def test_another_machine_names_what_differs() -> None:
    assert '(driver: "580.1" -> "581.0")' in refusal(check_machine, replace(BEGAN, driver="581.0"))


def test_another_python_or_package_names_both_versions() -> None:
    """Of all that differ."""
    other = Software(python="3.13.0", packages={"torch": "2.12.0", "accelerate": "1.15.0"})
    message = refusal(check_software, other, {"NCCL_ALGO": "Ring"})
    versions = "python: 3.12.3 -> 3.13.0; torch: 2.11.0 -> 2.12.0; peft: 0.21.0 -> none; accelerate: none -> 1.15.0"
    assert f"({versions})" in message


def test_other_variables_are_named() -> None:
    message = refusal(check_software, SOFTWARE, {"NCCL_PROTO": "LL"})
    assert "(NCCL_ALGO: Ring -> none; NCCL_PROTO: none -> LL)" in message
