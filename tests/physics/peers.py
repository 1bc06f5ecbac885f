"""Joules of a window as other tools find them, by their published methods, from the same simulated sensors.

Each is given what it reads without delay, and both ends of the window exactly: what remains is its method.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tests.physics.windows import Scene

# Power fields change so often, at a phase of their own.
REFRESH_S = 0.102
POLL_S = 0.100
# What nvidia-smi shows as power.draw is the mean of so long on these boards, and instant on A100, V100 and older ones.
AVERAGE_S = 1.0
INSTANT_DRAW = ("NVIDIA A100", "Tesla V100")
EXPORT_S = 1.0

Joules = float | None


def counter_difference(scene: Scene, _rng: np.random.Generator) -> Joules:
    """The energy counter read at both ends: Zeus on Volta and newer."""
    if not scene.board.has_counter:
        return None
    first, last = (scene.board.published_mj(scene.load, at_s) for at_s in (scene.start_s, scene.end_s))
    return (last - first) / 1e3


def polled_draw(scene: Scene, rng: np.random.Generator) -> Joules:
    """power.draw every 100 ms and at both ends, trapezoids between."""
    return _trapezoids_j(scene, rng, _draw_w)


def polled_instant(scene: Scene, rng: np.random.Generator) -> Joules:
    """power.draw.instant ten times a second and at both ends, trapezoids between; where the board has that field."""
    return _trapezoids_j(scene, rng, _instant_w) if scene.board.has_instant else None


def exported_draw(scene: Scene, rng: np.random.Generator) -> Joules:
    """power.draw once a second, each held until the next: fields of an exporter such as DCGM's."""
    times_s = np.arange(scene.start_s - rng.random() * EXPORT_S, scene.end_s, EXPORT_S)
    held_s = np.diff(np.concatenate(([scene.start_s], times_s[1:], [scene.end_s])))
    return float(np.sum(_draw_w(scene, _refreshed_s(times_s, rng)) * held_s))


PEERS: dict[str, Callable[[Scene, np.random.Generator], Joules]] = {
    "counter difference (as Zeus)": counter_difference,
    "power.draw every 100 ms": polled_draw,
    "power.draw.instant at 10 Hz": polled_instant,
    "power.draw every 1 s (as DCGM's exporter)": exported_draw,
}

Column = npt.NDArray[np.float64]


def _trapezoids_j(scene: Scene, rng: np.random.Generator, power_w: Callable[[Scene, Column], Column]) -> float:
    times_s = np.append(np.arange(scene.start_s, scene.end_s - 1e-9, POLL_S), scene.end_s)
    return float(np.trapezoid(power_w(scene, _refreshed_s(times_s, rng)), times_s))


def _refreshed_s(times_s: Column, rng: np.random.Generator) -> Column:
    """When the value that is read at each time was taken."""
    phase_s = rng.random() * REFRESH_S
    return np.asarray(np.floor((times_s - phase_s) / REFRESH_S) * REFRESH_S + phase_s)


def _instant_w(scene: Scene, at_s: Column) -> Column:
    return scene.board.reading_w(scene.load, at_s)


def _draw_w(scene: Scene, at_s: Column) -> Column:
    if scene.board.name.startswith(INSTANT_DRAW):
        return _instant_w(scene, at_s)
    return np.asarray((scene.load.energy_j(at_s) - scene.load.energy_j(at_s - AVERAGE_S)) / AVERAGE_S)
