"""Every distinct system call of a small run fails, with each of its errors: at its first, second, last place, for good.

About 1,000 runs, each of them resumed afterwards: an hour on a busy machine of two cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cli.fault_sweep import Fault, FaultSweep, faults


@pytest.mark.timeout(4 * 3600)
def test_every_call_that_fails(benchmark: Any, tmp_path: Path, native: Callable[..., Path]) -> None:
    """No traceback, nothing lost, the right exit code, no false verdict."""
    library = native(tmp_path / "faults.so", "tests/native/system_call_faults.cpp", "-shared", "-fPIC")
    num_parts = os.cpu_count() or 1

    def part(number: int) -> dict[Fault, str | None]:
        folder = tmp_path / f"part{number}"
        folder.mkdir()
        sweep = FaultSweep(folder, library)
        found = {fault: sweep.problem(fault) for fault in list(faults(sweep.calls()))[number::num_parts]}
        sweep.close()
        return found

    def whole() -> dict[Fault, str | None]:
        with ThreadPoolExecutor(num_parts) as pool:
            return {fault: found for each in pool.map(part, range(num_parts)) for fault, found in each.items()}

    found = benchmark.pedantic(whole, rounds=1)
    reached = {fault: problem for fault, problem in found.items() if problem != ""}
    benchmark.extra_info |= {"faults": len(found), "reached": len(reached)}
    assert len(reached) > 1000
    assert {str(fault): problem for fault, problem in reached.items() if problem is not None} == {}
