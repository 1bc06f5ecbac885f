"""Loads whose power is constant between changes, so that joules and a low-pass answer are exact."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Load:
    """``power_w[i]`` from ``edge_s[i]`` to ``edge_s[i + 1]``; the last power has no end."""

    edge_s: Column
    power_w: Column
    _behind: dict[float, Column] = field(default_factory=dict, repr=False, compare=False)

    def energy_j(self, time_s: npt.ArrayLike) -> Column:
        """Joules from the first edge to each time."""
        at_edges_j = np.concatenate(([0.0], np.cumsum(np.diff(self.edge_s) * self.power_w[:-1])))
        piece = self._piece(time_s)
        return np.asarray(at_edges_j[piece] + (np.asarray(time_s) - self.edge_s[piece]) * self.power_w[piece])

    def power_at_w(self, time_s: npt.ArrayLike) -> Column:
        """Watts at each time."""
        return np.asarray(self.power_w[self._piece(time_s)])

    def low_pass_w(self, time_s: npt.ArrayLike, tau_s: float) -> Column:
        """Answer of a first-order low-pass that had settled before the first edge; ``tau_s`` 0 is the power itself."""
        if tau_s == 0:
            return self.power_at_w(time_s)
        if tau_s not in self._behind:
            self._behind[tau_s] = self._behind_edges_w(tau_s)
        piece = self._piece(time_s)
        power_w = self.power_w[piece]
        decay = np.exp(-(np.asarray(time_s) - self.edge_s[piece]) / tau_s)
        return np.asarray(power_w + (self._behind[tau_s][piece] - power_w) * decay)

    def _behind_edges_w(self, tau_s: float) -> Column:
        at_edges_w = [float(self.power_w[0])]
        decays = np.exp(-np.diff(self.edge_s) / tau_s).tolist()
        for power_w, decay in zip(self.power_w[:-1].tolist(), decays, strict=True):
            at_edges_w.append(power_w + (at_edges_w[-1] - power_w) * decay)
        return np.array(at_edges_w)

    def _piece(self, time_s: npt.ArrayLike) -> npt.NDArray[np.intp]:
        return np.clip(np.searchsorted(self.edge_s, time_s, side="right") - 1, 0, len(self.power_w) - 1)


def fluctuating(load: Load, fraction: float, tau_s: float, end_s: float, rng: np.random.Generator) -> Load:
    """The load with white noise of its own, of which a low-pass of ``tau_s`` leaves this fraction of the power."""
    step_s = 1e-3
    edge_s = np.unique(np.concatenate((load.edge_s, np.arange(load.edge_s[0], end_s, step_s))))
    sigma = fraction * np.sqrt(2 * tau_s / np.diff(edge_s, append=edge_s[-1] + step_s).clip(step_s / 4))
    return Load(edge_s, np.maximum(load.power_at_w(edge_s) * (1 + sigma * rng.standard_normal(len(edge_s))), 0.0))


def constant(power_w: float, start_s: float) -> Load:
    """One power for ever."""
    return Load(np.array([start_s]), np.array([power_w]))


def square(low_w: float, high_w: float, low_s: float, high_s: float, start_s: float, end_s: float) -> Load:
    """Low, high, low, high."""
    num_cycles = int(np.ceil((end_s - start_s) / (low_s + high_s)))
    lengths_s = np.tile([low_s, high_s], num_cycles)
    edge_s = start_s + np.concatenate(([0.0], np.cumsum(lengths_s)[:-1]))
    return Load(edge_s, np.tile([low_w, high_w], num_cycles))


def unsteady(
    rng: np.random.Generator, period_s: float, start_s: float, end_s: float, *, drift: float = 0.0, jitter: float = 0.0
) -> Load:
    """Decode whose rounds grow longer by ``drift`` of their length in a second, each ``jitter`` of it off by itself."""
    now_s, lengths_s = start_s, []
    while now_s < end_s:
        length_s = period_s * (1 + drift * (now_s - start_s)) * (1 + jitter * rng.standard_normal())
        lengths_s += [0.4 * length_s, 0.6 * length_s]
        now_s += length_s
    edge_s = start_s + np.concatenate(([0.0], np.cumsum(lengths_s)[:-1]))
    return Load(edge_s, np.tile([300.0, 600.0], len(lengths_s) // 2))


def generation(period_s: float, start_s: float, end_s: float) -> Load:
    """Steps of a prefill near the power limit and 16 rounds of decode."""
    step_s, step_w = [0.12, *np.tile([0.4 * period_s, 0.6 * period_s], 16)], [680.0, *np.tile([300.0, 600.0], 16)]
    num_steps = int(np.ceil((end_s - start_s) / sum(step_s)))
    edge_s = start_s + np.concatenate(([0.0], np.cumsum(np.tile(step_s, num_steps))[:-1]))
    return Load(edge_s, np.tile(step_w, num_steps))


def batches(num_steps: int, prefill_s: float, decode_s: float, apart_s: float) -> Load:
    """An idle board, then steps from 0 s on: prefill near the power limit, decode in rounds of 13.4 ms; then idle."""
    num_rounds = int(decode_s / 13.4e-3)
    step_s = [prefill_s, *[4e-3, 9.4e-3] * num_rounds, decode_s - num_rounds * 13.4e-3, apart_s]
    step_w = [650.0, *[500.0, 380.0] * num_rounds, 500.0, 85.0]
    edge_s = np.cumsum([-10.0, 10.0, *step_s * num_steps])
    return Load(edge_s, np.array([85.0, *step_w * num_steps, 85.0]))


def bursty(rng: np.random.Generator, start_s: float, end_s: float) -> Load:
    """Serving: requests come at random; each has a prefill near the power limit, then a decode; idle between."""
    edge_s, power_w, now_s = [], [], start_s
    while now_s < end_s:
        for length_s, watts in (
            (rng.exponential(0.15), 120.0),
            (rng.uniform(0.02, 0.12), rng.uniform(600.0, 690.0)),
            (rng.uniform(0.1, 0.8), rng.uniform(330.0, 450.0)),
        ):
            edge_s.append(now_s)
            power_w.append(watts)
            now_s += length_s
    return Load(np.array(edge_s), np.array(power_w))


def training(rng: np.random.Generator, layer_s: float, start_s: float, end_s: float) -> Load:
    """Training steps, then an idle board: layers forward, the loss, layers backward, the optimizer, a pause.

    A layer takes ``layer_s`` forward and, with its recomputation, three times as long backward. Its five kernels draw
    what products, attention and element-wise kernels do. Each kernel's time is off by 0.3 % by itself.
    """
    share = np.array([0.18, 0.12, 0.05, 0.55, 0.10])
    watts = rng.uniform([600, 430, 330, 620, 330], [700, 600, 450, 700, 480])
    num_layers = int(rng.choice([8, 16, 32]))
    loss_s, optimizer_s, pause_s = rng.uniform([0.03, 0.05, 0.001], [0.08, 0.15, 0.015])
    forward_s, backward_s = share * layer_s, np.concatenate((share, 2 * share[::-1])) * layer_s
    step_s = [*np.tile(forward_s, num_layers), 0.4 * loss_s, 0.6 * loss_s, *np.tile(backward_s, num_layers)]
    step_w = [*np.tile(watts, num_layers), 660.0, 400.0, *np.tile([*watts, *(watts[::-1] + 20)], num_layers)]
    num_steps = int(np.ceil((end_s - start_s) / (sum(step_s) + optimizer_s)))
    lengths_s = np.tile([*step_s, optimizer_s, pause_s], num_steps)
    lengths_s *= 1 + 0.003 * rng.standard_normal(len(lengths_s))
    edge_s = start_s + np.concatenate(([0.0], np.cumsum(lengths_s)[:-1]))
    works = edge_s < end_s
    power_w = np.tile([*step_w, 380.0, 150.0], num_steps)
    return Load(np.append(edge_s[works], end_s), np.append(power_w[works], 120.0))
