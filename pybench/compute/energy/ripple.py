"""A fast periodic load behind slow samples, by folding them.

Samples 20 ms apart can't show what a load does within 33 ms; but where it does the same again and again, samples of
many periods, each a little early or late, show the whole shape (equivalent-time sampling): a least-squares fit of a
fundamental and its harmonics (Lomb, Astrophys. Space Sci. 39, 1976), with the sensor's low-pass divided out of each.
It is believed only where it foretells samples that it was not fitted to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pybench.compute.energy.times import Column

MIN_SAMPLES = 60
# It is taken to have begun before the first of them and to go on after the last.
EXTENSION_S = 0.05
# Slower loads are resolved by the samples themselves, and must not be taken for the faster ones that they alias with;
# still faster ones hardly pass the sensor's low-pass.
SLOWEST_HZ, FASTEST_HZ = 2.0, 100.0
RIPPLE_HZ = 17.0
STEPS_PER_RESOLUTION = 5
NUM_PEAKS = 8
HIGHEST_HARMONIC_HZ = 260.0
MOST_HARMONICS = 5
NUM_STEPS = 3
RIDGE_FRACTION = 1e-6
# What the fit leaves of samples it was not fitted to, as a part of their deviation.
BELIEVED_FRACTION = 0.2
# Another frequency that leaves no more than this many times as much may be the true one.
RIVAL_TIMES = 2.0
RIVAL_STEP = 0.0037
RIPPLE_NOISES = 5.0

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Ripple:
    """Power that swings around 0 W from ``start_s`` to ``end_s``.

    ``seen_w`` is the complex amplitude of each harmonic in the samples; the load's own lies behind a low-pass of
    ``tau_s``. ``left_w`` is the deviation of the samples from it. ``rivals`` explain them about as well: loads of 30
    and of 70 Hz look alike in samples that are spaced evenly.
    """

    start_s: float
    end_s: float
    num_samples: int
    frequency_hz: float
    seen_w: npt.NDArray[np.complex128]
    left_w: float
    tau_s: float = 0.0
    tau_sigma_s: float = 0.0
    rivals: tuple[Ripple, ...] = ()

    def behind(self, tau_s: float, tau_sigma_s: float) -> Ripple:
        """The same, seen through a low-pass of a time constant known so well."""
        rivals = tuple(rival.behind(tau_s, tau_sigma_s) for rival in self.rivals)
        return replace(self, tau_s=tau_s, tau_sigma_s=tau_sigma_s, rivals=rivals)

    def power_seen_w(self, time_s: Column) -> Column:
        """What it adds to samples at these times."""
        inside = (time_s >= self.start_s) & (time_s <= self.end_s)
        return np.where(inside, _waves(time_s, self.frequency_hz, len(self.seen_w)) @ _parts(self.seen_w), 0.0)

    def energy_j(self, time_s: Column) -> Column:
        """Joules since its start; as much as at its end after that."""
        inside_s = np.clip(time_s, self.start_s, self.end_s).ravel()
        waves = _waves(np.append(inside_s, self.start_s), self.frequency_hz, len(self.seen_w))
        energy_j = waves @ _parts(self.seen_w * self._gain(self.tau_s) / (1j * self._omega))
        return np.asarray(energy_j[:-1] - energy_j[-1]).reshape(np.shape(time_s))

    @property
    def sigma_j(self) -> float:
        """Standard deviation of the joules at any time, by noise, an unknown low-pass and rivals."""
        noise_w = np.abs(self._gain(self.tau_s)) * self.left_w / np.sqrt(self.num_samples)
        wrong_w = np.abs(self.seen_w) * self._omega * self.tau_sigma_s
        time_s = self.start_s + (self.end_s - self.start_s) * np.arange(0, 1, RIVAL_STEP)
        apart_j = [np.std(self.energy_j(time_s) - rival.energy_j(time_s)) for rival in self.rivals]
        own_j = np.linalg.norm(np.hypot(noise_w, wrong_w / np.sqrt(2)) / self._omega)
        return float(np.hypot(own_j, max(apart_j, default=0.0)))

    @property
    def _omega(self) -> Column:
        return np.asarray(2 * np.pi * self.frequency_hz * np.arange(1, len(self.seen_w) + 1))

    def _gain(self, tau_s: float) -> npt.NDArray[np.complex128]:
        return np.asarray(1 + 1j * self._omega * tau_s)


def find_ripple(time_s: Column, power_w: Column, noise_w: float) -> Ripple | None:
    """The ripple in samples; ``None`` where there is none or it can't be found."""
    if len(time_s) < MIN_SAMPLES or np.std(power_w) < RIPPLE_NOISES * noise_w:
        return None
    middle_s = float(time_s.mean())
    fits = [_Fit.of(time_s - middle_s, power_w, frequency_hz) for frequency_hz in _peaks(time_s - middle_s, power_w)]
    fits.sort(key=lambda fit: fit.left_w)
    if not fits or fits[0].frequency_hz < RIPPLE_HZ or fits[0].left_w > BELIEVED_FRACTION * float(np.std(power_w)):
        return None
    if _looks_slow(fits[0], time_s - middle_s, power_w):
        return None
    near = [fit.ripple(time_s, middle_s) for fit in fits if fit.left_w <= RIVAL_TIMES * fits[0].left_w]
    return replace(near[0], rivals=tuple(near[1:]))


def _looks_slow(fit: _Fit, time_s: Column, power_w: Column) -> bool:
    """Whether the slow load that evenly spaced samples would take it for explains them about as well."""
    sampled_hz = 1 / float(np.median(np.diff(time_s)))
    alias_hz = abs(fit.frequency_hz - round(fit.frequency_hz / sampled_hz) * sampled_hz)
    slow_hz = max(alias_hz, 1 / float(np.ptp(time_s)))
    return slow_hz < RIPPLE_HZ and _Fit.of(time_s, power_w, slow_hz).left_w <= RIVAL_TIMES * fit.left_w


def _waves(time_s: Column, frequency_hz: float, num_harmonics: int) -> Matrix:
    """Columns: the cosine of each harmonic, then the sine of each."""
    phase = 2 * np.pi * frequency_hz * np.outer(time_s, np.arange(1, num_harmonics + 1))
    return np.hstack((np.cos(phase), np.sin(phase)))


def _parts(amplitude: npt.NDArray[np.complex128]) -> Column:
    """Weights of the waves for the real part of ``amplitude * exp(i·phase)``."""
    return np.concatenate((amplitude.real, -amplitude.imag))


def _peaks(time_s: Column, power_w: Column) -> list[float]:
    """Frequencies whose one wave explains most of the samples, refined."""
    step_hz = 1 / (STEPS_PER_RESOLUTION * float(np.ptp(time_s)))
    frequency_hz, explained = _spectrum(step_hz, time_s, power_w)
    tops = np.flatnonzero((explained[1:-1] >= explained[:-2]) & (explained[1:-1] > explained[2:])) + 1
    tops = tops[np.argsort(explained[tops])[::-1][:NUM_PEAKS]]
    return [_vertex(frequency_hz[top], step_hz, time_s, power_w) for top in tops]


def _vertex(frequency_hz: float, step_hz: float, time_s: Column, power_w: Column) -> float:
    """The top of a peak: of the parabola through the highest of finer steps and its neighbours."""
    finer_hz = frequency_hz + np.linspace(-step_hz, step_hz, 4 * STEPS_PER_RESOLUTION + 1)
    explained = _explained(finer_hz, time_s, power_w)
    top = int(np.clip(np.argmax(explained), 1, len(finer_hz) - 2))
    before, at, after = explained[top - 1 : top + 2]
    bend = before - 2 * at + after
    part = float(np.clip((before - after) / (2 * bend), -1, 1)) if bend < 0 else 0.0
    return float(finer_hz[top] + part * (finer_hz[1] - finer_hz[0]))


def _spectrum(step_hz: float, time_s: Column, power_w: Column) -> tuple[Column, Column]:
    """As many coarse steps as fine ones between them: the waves are products, and the sums one matrix product."""
    num = int(np.ceil(np.sqrt((FASTEST_HZ - SLOWEST_HZ) / step_hz)))
    fine_hz: Column = step_hz * np.arange(num, dtype=np.float64)
    coarse_hz: Column = SLOWEST_HZ + num * fine_hz
    swing_w = power_w - power_w.mean()
    # Small matrices: threads of a BLAS would cost more than they gain.
    sums = np.einsum("ij,kj->ik", _turns(coarse_hz, time_s) * swing_w, _turns(fine_hz, time_s))
    return (coarse_hz[:, None] + fine_hz).ravel(), np.abs(sums).ravel()


def _explained(frequency_hz: Column, time_s: Column, power_w: Column) -> Column:
    return np.asarray(np.abs(np.sum(_turns(frequency_hz, time_s) * (power_w - power_w.mean()), axis=1)))


def _turns(frequency_hz: Column, time_s: Column) -> npt.NDArray[np.complex128]:
    return np.asarray(np.exp(-2j * np.pi * np.outer(frequency_hz, time_s)))


@dataclass(frozen=True)
class _Fit:
    """``left_w`` is the deviation of samples from a fit to the others."""

    frequency_hz: float
    seen_w: npt.NDArray[np.complex128]
    left_w: float

    def ripple(self, time_s: Column, middle_s: float) -> Ripple:
        """It on samples that it was found in at times less ``middle_s``."""
        phase = 2 * np.pi * self.frequency_hz * np.arange(1, len(self.seen_w) + 1) * middle_s
        return Ripple(
            start_s=float(time_s[0]) - EXTENSION_S,
            end_s=float(time_s[-1]) + EXTENSION_S,
            num_samples=len(time_s),
            frequency_hz=self.frequency_hz,
            seen_w=self.seen_w * np.exp(-1j * phase),
            left_w=self.left_w,
        )

    @classmethod
    def of(cls, time_s: Column, power_w: Column, near_hz: float) -> _Fit:
        num = int(np.clip(HIGHEST_HARMONIC_HZ // near_hz, 1, MOST_HARMONICS))
        frequency_hz = _tuned(time_s, power_w, near_hz, num)
        columns = _columns(time_s, frequency_hz, num)
        even = np.arange(len(time_s)) // 2 % 2 == 0
        halves = ((even, ~even), (~even, even))
        off_w = [power_w[other] - columns[other] @ _solve(columns[one], power_w[one]) for one, other in halves]
        left_w = float(np.sqrt(np.mean(np.concatenate(off_w) ** 2)))
        return cls(frequency_hz, _amplitude(_solve(columns, power_w), num), left_w)


def _tuned(time_s: Column, power_w: Column, frequency_hz: float, num_harmonics: int) -> float:
    """The frequency at which all harmonics together fit best, by Gauss and Newton's steps."""
    farthest_hz = 1 / (STEPS_PER_RESOLUTION * float(np.ptp(time_s)))
    for _ in range(NUM_STEPS):
        columns = _columns(time_s, frequency_hz, num_harmonics)
        weight = _solve(columns, power_w)
        turned_w = _amplitude(weight, num_harmonics) * 2j * np.pi * np.arange(1, num_harmonics + 1)
        slope = time_s * (columns[:, : 2 * num_harmonics] @ _parts(turned_w))
        step_hz = _solve(np.hstack((columns, slope[:, None])), power_w)[-1]
        frequency_hz += float(np.clip(step_hz, -farthest_hz, farthest_hz))
    return frequency_hz


def _columns(time_s: Column, frequency_hz: float, num_harmonics: int) -> Matrix:
    """The waves, a constant, and a drift."""
    drift = time_s / max(float(np.max(np.abs(time_s))), 1e-9)
    return np.hstack((_waves(time_s, frequency_hz, num_harmonics), np.ones((len(time_s), 1)), drift[:, None]))


def _amplitude(weight: Column, num_harmonics: int) -> npt.NDArray[np.complex128]:
    return np.asarray(weight[:num_harmonics] - 1j * weight[num_harmonics : 2 * num_harmonics])


def _solve(columns: Matrix, power_w: Column) -> Column:
    """Least squares; columns that the samples can't separate share what they explain."""
    ridge = RIDGE_FRACTION * np.diag(np.mean(columns**2, axis=0))
    return np.asarray(np.linalg.solve(columns.T @ columns + ridge, columns.T @ power_w))
