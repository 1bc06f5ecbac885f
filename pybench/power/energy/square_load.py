"""A load of known square waves, as a sensor shows it that averages over a window behind a first-order low-pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from pybench.power.energy.times import Column

Spans = Sequence[tuple[float, float]]
"""Starts and ends of the time in which the load was on, in s, one after the other."""

# A shorter window or low-pass is none.
LEAST_SHOWN_S = 1e-6


@dataclass(frozen=True)
class SquareLoad:
    """1 within spans, 0 else; ``edge_s`` in order, and how long it was on before each."""

    edge_s: Column
    on_s: Column
    _passed_at: dict[float, Column] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, spans: Spans) -> SquareLoad:
        """On within each of the spans."""
        edge_s = np.ravel(spans).astype(np.float64)
        lengths_s = np.diff(edge_s) * (np.arange(len(edge_s) - 1) % 2 == 0)
        return cls(edge_s, np.concatenate(([0.0], np.cumsum(lengths_s))))

    def seen(self, time_s: Column, window_s: float, tau_s: float) -> Column:
        """Mean of the window before each time, of the load behind the low-pass."""
        if window_s < LEAST_SHOWN_S:
            return self._passed(time_s, tau_s)
        now = self._on(time_s) - tau_s * self._passed(time_s, tau_s)
        before = self._on(time_s - window_s) - tau_s * self._passed(time_s - window_s, tau_s)
        return np.asarray((now - before) / window_s)

    def _on(self, time_s: Column) -> Column:
        return np.asarray(np.interp(time_s, self.edge_s, self.on_s))

    def _passed(self, time_s: Column, tau_s: float) -> Column:
        which = np.searchsorted(self.edge_s, time_s, side="right")
        on = (which % 2 == 1).astype(np.float64)
        if tau_s < LEAST_SHOWN_S:
            return np.asarray(on)
        if tau_s not in self._passed_at:
            self._passed_at[tau_s] = self._at_edges(tau_s)
        at_edges = self._passed_at[tau_s]
        last = np.clip(which - 1, 0, len(self.edge_s) - 1)
        passed = on + (at_edges[last] - on) * np.exp(-np.maximum(time_s - self.edge_s[last], 0.0) / tau_s)
        return np.asarray(np.where(which == 0, 0.0, passed))

    def _at_edges(self, tau_s: float) -> Column:
        passed = [0.0]
        for number, decay in enumerate(np.exp(-np.diff(self.edge_s) / tau_s).tolist(), start=1):
            power = 1.0 if number % 2 == 1 else 0.0
            passed.append(power + (passed[-1] - power) * decay)
        return np.array(passed)
