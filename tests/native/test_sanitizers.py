"""Native code under the thread, address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

# The compiler reads each header once for sources in one file. Sources with a private name in common stay separate.
SAMPLER = ("capability", "clock", "gpu", "nvml_api", "recorder", "recording", "sample_series", "session")
SAMPLER_APART = ("retention", "step_search")
ESTIMATE = ("counter_filter", "grid_phases", "linear_columns")
ESTIMATE_APART = ("low_pass",)
SANITIZERS = ("thread", "address,undefined")


def sources(folder: Path, together: Sequence[str], apart: Sequence[str]) -> tuple[str, ...]:
    """Paths of these sources, with ``together`` as one, which is written to ``folder``."""
    file = folder / "together.cpp"
    file.write_text("".join(f'#include "{name}.cpp"\n' for name in together))
    return (str(file), *(f"csrc/{name}.cpp" for name in apart))


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_ring(native: Callable[..., Path], sanitizer: str, tmp_path: Path) -> None:
    options = (f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-O1")
    program = native(tmp_path / "ring", "tests/native/ring_stress.cpp", *options)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "every record accounted for\n", "")


def test_loops_of_an_estimate(native: Callable[..., Path], tmp_path: Path) -> None:
    """They run in the caller's thread alone."""
    options = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Og", "-Wno-unknown-pragmas")
    parts = ("tests/native/energy_loops.cpp", *sources(tmp_path, ESTIMATE, ESTIMATE_APART))
    program = native(tmp_path / "loops", *parts, *options)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "every loop ended\n", "")


DRIVERS = {
    "well": {"LATENCY": "h200", "DEVICES": "8"},
    "failing": {"FAIL": "nvmlDeviceGetFieldValues:999:1,nvmlDeviceGetSamples:4,*:15:0@after=60"},
    "hanging": {"HANG": "nvmlDeviceGetFieldValues:1500:1@call=3", "LATENCY": "h200", "GLOBAL_LOCK": "1"},
}
# LeakSanitizer's own thread may break where threads end while it looks at their stacks: no finding, and no answer.
SEARCH_BROKE = "LeakSanitizer has encountered a fatal error"
MOST_SEARCHES = 4
Starts = dict[tuple[str, str], Callable[[], "subprocess.Popen[str]"]]


@pytest.fixture(scope="module")
def starts(
    native: Callable[..., Path],
    fake_driver: Callable[..., Path],
    fake_library: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Starts]:
    """What starts the stress program of each sanitizer at each driver. Programs end with the fixture.

    The thread sanitizer must see the driver's own locks; of the driver's memory no other sanitizer is told.
    """
    found: Starts = {}
    with ExitStack() as stack:

        def start(program: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
            uuids = (f"GPU-{i:08}-fake-4000-8000-{i:012}" for i in range(int(environment["FAKE_NVML_DEVICES"])))
            running = subprocess.Popen(
                [program, *uuids], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            stack.enter_context(running)
            stack.callback(running.kill)
            return running

        for sanitizer in SANITIZERS:
            folder = tmp_path_factory.mktemp("sanitized")
            # As quick to build as can be: a build takes longer than the sessions compute.
            options = (f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-g1", "-Og")
            parts = ("tests/native/sampler_stress.cpp", *sources(folder, SAMPLER, SAMPLER_APART))
            program = native(folder / "stress", *parts, *options)
            fake = fake_driver(folder, *options) if sanitizer == "thread" else fake_library
            for name, told in DRIVERS.items():
                settings = {
                    f"FAKE_NVML_{key}": value
                    for key, value in {"LOAD": "square:100:600:40", "DEVICES": "2", **told}.items()
                }
                environment = {**os.environ, **settings, "PYBENCH_NVML_LIBRARY": str(fake)}
                found[sanitizer, name] = partial(start, program, environment)
        yield found


@pytest.fixture(scope="module")
def stressed(starts: Starts) -> dict[tuple[str, str], subprocess.Popen[str]]:
    """All at once: they wait for nearly all of their time."""
    return {which: start() for which, start in starts.items()}


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_sessions(
    starts: Starts, stressed: dict[tuple[str, str], subprocess.Popen[str]], sanitizer: str, driver: str
) -> None:
    program = stressed[sanitizer, driver]
    output, errors = program.communicate()
    for _ in range(MOST_SEARCHES - 1):
        if SEARCH_BROKE in errors:
            program = starts[sanitizer, driver]()
            output, errors = program.communicate()
    assert (program.returncode, output, errors) == (0, "30 sessions\n", "")
