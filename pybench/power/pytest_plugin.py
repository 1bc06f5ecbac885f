"""A plug-in of pytest: the fixture ``benchmark_energy`` adds joules to what pytest-benchmark measures.

::

    def test_decode(benchmark_energy):
        benchmark_energy(decode, batch, sync=torch.cuda.synchronize)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pybench.power.sampler import PowerSampler

# A bound is about ±1 % from this length on; see docs/energy.md.
LEAST_S = 1.0
_ROWS = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def _power() -> Iterator[PowerSampler]:
    from pybench.power.sampler import PowerSampler  # noqa: PLC0415 - every pytest of the environment loads this module

    with PowerSampler(required=False) as power:
        yield power


@pytest.fixture
def benchmark_energy(
    benchmark: Any,  # noqa: ANN401 - pytest-benchmark has no types
    _power: PowerSampler,
    request: pytest.FixtureRequest,
) -> Callable[..., object]:
    """As ``benchmark(function, *args, **kwargs)``; joules of a call are in ``extra_info``, with their bound.

    After the timing, the function is called for another second in one window, whose joules are divided by the number
    of calls. Without a GPU they are ``None``. ``sync`` waits for the device at both ends of the window.
    """

    def measure(
        function: Callable[..., object], *args: object, sync: Callable[[], object] | None = None, **kwargs: object
    ) -> object:
        result: object = benchmark(function, *args, **kwargs)
        if benchmark.disabled:
            return result
        calls, end_s = 0, time.monotonic() + LEAST_S
        with _power.window(request.node.nodeid, sync) as window:
            while time.monotonic() < end_s:
                function(*args, **kwargs)
                calls += 1
        energy = window.energy()
        joules = {name: getattr(energy, name) for name in ("energy_j", "energy_low_j", "energy_high_j")}
        benchmark.extra_info |= {name: None if j is None else j / calls for name, j in joules.items()}
        benchmark.extra_info |= {"mean_power_w": energy.mean_power_w, "energy_flags": ", ".join(energy.flags)}
        shown = f"unknown: {_power.unavailable_reason}"
        if energy.energy_j is not None:
            shown = f"{energy.energy_j / calls:.6g} J a call; {calls} calls: {energy}"
        request.config.stash.setdefault(_ROWS, []).append(f"{request.node.nodeid}: {shown}")
        return result

    return measure


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """A line for each test that measured joules."""
    if rows := config.stash.get(_ROWS, []):
        terminalreporter.section("benchmark energy")
        for row in rows:
            terminalreporter.write_line(row)
