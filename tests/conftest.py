"""Each test's tier, the fake NVML library and other native programs of the tests, and what the fake is set to."""

from __future__ import annotations

import atexit
import ctypes
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pynvml
import pytest

from pybench.machine import health_watch
from tests.build import Build
from tests.builders import NO_DRIVER
from tests.processes import kill_on_failure
from tests.session_folders import made_once
from tests.tiers import TIERS, TIME_LIMITS_S, left_out, no_process, tier_of, watch_processes
from tests.warm_python import forking_python

NATIVE = Path(__file__).parent / "native"
ROOT = NATIVE.parents[1]
FAKE_LIBRARY = "libnvidia-ml.so.1"
SETTINGS = (
    *("DEVICES", "LOAD", "SENSOR", "COUNTER_LAG_MS", "ZERO_EVERY", "COUNTER_RESET_MS", "FAIL", "FIELD_FAIL", "HANG"),
    *(
        "LATENCY",
        "BUSY",
        "GLOBAL_LOCK",
        "MIG",
        "SHARED_BOARD",
        "FABRIC",
        "MODULE",
        "DRIVER",
        "NAME",
        "COUNTS",
        "CLOCK_EVENT_REASONS",
    ),
    *("ECC_CORRECTED", "ECC_UNCORRECTED", "REMAPPED_ROWS", "REMAP_PENDING", "REMAP_FAILED", "PAIR_LINKS"),
    *("PCIE_WIDTH", "PCIE_GENERATION", "PROCESSES", "NVLINK_SENT_KIB"),
    *("CAPABILITY", "COMPUTE_MODE", "MEMORY_MIB", "LIMIT_W", "DEFAULT_LIMIT_W"),
)
_drivers = itertools.count()

# A shell's background job ignores Ctrl-C, and so would every program that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
watch_processes()
kill_on_failure()

# Tests that run at once, here or in another checkout, do not wait for each other's devices.
os.environ["PYBENCH_LOCKS"] = tempfile.mkdtemp(prefix="pybench-locks-")
atexit.register(shutil.rmtree, os.environ["PYBENCH_LOCKS"], ignore_errors=True)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave modules of other tiers unread."""
    is_module = collection_path.match("test_*.py")
    unread = is_module and left_out(collection_path, config.getoption("markexpr"))
    return True if unread else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test with its tier, and with the tier's time limit if it has no other."""
    tier = tier_of(item.path)
    item.add_marker(tier)
    if tier in TIME_LIMITS_S and item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(TIME_LIMITS_S[tier]))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the last tier, whose files take longest: at the end of parallel tests no long file is alone."""
    order = {tier: place for place, tier in enumerate(reversed(TIERS))}
    items.sort(key=lambda item: order[tier_of(item.path)])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Hold a pure test to its tier, with its fixtures."""
    if item.get_closest_marker("pure") is None:
        return (yield)
    with no_process(item.nodeid):
        return (yield)


def nvml_include() -> Path:
    """Folder of nvml.h: of the package nvidia-nvml-dev, else of the CUDA toolkit."""
    toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"
    found = [*(folder for entry in sys.path for folder in Path(entry).glob("nvidia/*/include")), toolkit]
    for folder in found:
        if (folder / "nvml.h").exists():
            return folder
    raise FileNotFoundError("nvml.h: pip install nvidia-nvml-dev, or set CUDA_HOME to a toolkit")


def compile_native(out: Path, *arguments: str) -> Path:
    """Compile and link sources of this repository, named from its root, into ``out``."""
    headers = ("-isystem", str(nvml_include()), "-Icsrc")
    command = ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations", *headers]
    subprocess.run([*command, *arguments, "-o", str(out), "-pthread", "-ldl"], cwd=ROOT, check=True)
    return out


def build_fake(folder: Path, *options: str, lacks: tuple[str, ...] = ()) -> Path:
    """Build the fake driver's library, without the symbols that it ``lacks``."""
    script = folder / "exports.map"
    hidden = "".join(f"{name};" for name in lacks)
    script.write_text(f"{{ global: nvml*; fake_nvml*; local: {hidden} *; }};")
    # Bound to itself: a process may hold several of these.
    linking = ("-shared", "-fPIC", f"-Wl,--version-script={script}", "-Wl,-Bsymbolic")
    return compile_native(folder / FAKE_LIBRARY, "tests/native/fake_nvml.cpp", *linking, *options)


@pytest.fixture(scope="session")
def warm_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An interpreter whose workers begin with torch imported; processes of a session share it."""
    with forking_python(made_once(tmp_path_factory, "warm", Path.is_dir)) as python:
        yield python


@pytest.fixture(scope="session")
def warm_pybench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The command ``pybench``, with all that it imports imported."""
    with forking_python(made_once(tmp_path_factory, "warm_pybench", Path.is_dir), is_command=True) as pybench:
        yield pybench


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find no GPU, also on a machine that has some."""
    monkeypatch.setenv(*NO_DRIVER)


@pytest.fixture(scope="session")
def native() -> Callable[..., Path]:
    """Compile a native program: its path, then sources and options."""
    return compile_native


@pytest.fixture(scope="session")
def fake_driver() -> Callable[..., Path]:
    """Build a fake driver in a folder, with compiler options, or without symbols that it ``lacks``."""
    return build_fake


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "nvml", build_fake) / FAKE_LIBRARY


@pytest.fixture(scope="session")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As drivers before the sample buffer, the power fields and the newer names."""
    names = ("Init_v2", "DeviceGetSamples", "DeviceGetFieldValues", "DeviceGetCurrentClocksEventReasons")
    lacks = tuple(f"nvml{name}" for name in names)
    return made_once(tmp_path_factory, "old", lambda folder: build_fake(folder, lacks=lacks)) / FAKE_LIBRARY


@pytest.fixture
def fake_nvml(fake_library: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Use the fake; keyword ``load="constant:400"`` sets FAKE_NVML_LOAD, and so on.

    Each telling is another driver version unless one is given: what a GPU lacks is remembered for its driver.
    """

    def tell(**settings: object) -> None:
        for name, value in {"driver": f"580.{next(_drivers)}.fake", **settings}.items():
            assert name.upper() in SETTINGS
            monkeypatch.setenv(f"FAKE_NVML_{name.upper()}", str(value))

    monkeypatch.setenv("PYBENCH_NVML_LIBRARY", str(fake_library))
    for name in SETTINGS:
        monkeypatch.delenv(f"FAKE_NVML_{name}", raising=False)
    return tell


@pytest.fixture
def fresh_nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget the library that NVML's Python binding keeps for the life of the process."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    pynvml._nvmlGetFunctionPointer_cache.clear()
    yield
    pynvml._nvmlGetFunctionPointer_cache.clear()


@pytest.fixture
def fake_node(fresh_nvml: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose kernel log has no XIDs, whatever this machine's own log has."""
    monkeypatch.setattr(health_watch, "read_xids", lambda: ())


@pytest.fixture
def fake_epoch_ns(fake_library: Path) -> int:
    """CLOCK_MONOTONIC time at which the fake's load began."""
    epoch = ctypes.CDLL(str(fake_library)).fake_nvml_epoch_ns
    epoch.restype = ctypes.c_int64
    return int(epoch())


@pytest.fixture
def fake_truth_j(fake_library: Path) -> Callable[[int | None, int], float]:
    """The joules a GPU used, by its index, from the start of the fake's load to a CLOCK_MONOTONIC time."""
    energy = ctypes.CDLL(str(fake_library)).fake_nvml_energy_j
    energy.restype, energy.argtypes = ctypes.c_double, (ctypes.c_int, ctypes.c_int64)
    return lambda index, t_ns: float(energy(index, int(t_ns)))


@pytest.fixture
def fake_answered(fake_library: Path) -> Callable[[str, int], int]:
    """How many calls of a function about a GPU (-1: about none) came back with an answer."""
    answered = ctypes.CDLL(str(fake_library)).fake_nvml_answered
    answered.restype, answered.argtypes = ctypes.c_uint64, (ctypes.c_char_p, ctypes.c_int)
    return lambda function, index: int(answered(function.encode(), index))


@pytest.fixture
def build() -> Build:
    """Builders of points, records and machines."""
    return Build()
