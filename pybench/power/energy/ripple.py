"""A fast periodic load behind slow samples, by folding them.

Samples 20 ms apart can't show what a load does within 33 ms; but where it repeats, samples of
many periods, each a little early or late, show the whole shape (equivalent-time sampling): a fundamental and its
:mod:`~pybench.power.energy.harmonics`, with the sensor's low-pass divided out of each.
It is believed only where it predicts samples that it was not fitted to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pybench import _energy
from pybench.power.energy.harmonics import (
    STEPS_PER_RESOLUTION,
    Fits,
    HarmonicFit,
    tuning_hz,
    wave_sum,
)
from pybench.power.energy.times import Column, middle

MIN_SAMPLES = 60
# It is taken to have begun before the first of them and to go on after the last.
EXTENSION_S = 0.05
# Slower loads are resolved by the samples themselves, and must not be taken for the faster ones that they alias with;
# still faster ones hardly pass the sensor's low-pass.
SLOWEST_HZ, FASTEST_HZ = 2.0, 104.0
RIPPLE_HZ = 17.0
NUM_PEAKS = 8
# What the fit leaves of samples it was not fitted to, as a part of their deviation.
BELIEVED_FRACTION = 0.2
# Or it is noise: no more than this many times the noise, and no more than this part of the deviation.
NOISE_TIMES = 1.5
NOISY_FRACTION = 0.75
# Where the load begins or ends among so many samples at either end, one lies that many times as far off as is usual.
NUM_OUTER = 5
OUTER_TIMES = 3.5
# The one wave that explains most must explain this part of the variance.
EXPLAINED_FRACTION = 0.4
BIN_S = 2e-3
# Another frequency that leaves no more than this many times as much may be the true one.
RIVAL_TIMES = 2.0
RIVAL_NOISES = 0.75
RIVAL_STEP = 0.0037
# Untuned, the frequency that fits best leaves no more than so many times what any other leaves, and a rival of it no
# more than the second; or than so many times this part of the deviation.
UNTUNED_TIMES, UNTUNED_RIVAL_TIMES = 3.0, 5.0
UNTUNED_FRACTION = 0.06
# Harmonics up to this one are looked at for aliases.
HIGHEST_ALIAS = 12
# What samples can't separate shares what it explains.
LEAST_PRECISION = 1e-6
# Harmonics whose phase drifts by less than so many turns past the samples are in step with them. Samples that come
# early or late show a part of the first one.
IN_STEP_TURNS = 1.2
SEEN_FRACTION = 0.5
RIPPLE_NOISES = 1.5


@dataclass(frozen=True)
class Ripple:
    """Power that swings around 0 W from ``start_s`` to ``end_s``.

    ``seen_w`` is the complex amplitude of each harmonic in the samples; the load's own lies behind a low-pass of
    ``tau_s``. ``left_w`` is the deviation of the samples from it. ``rivals`` explain them about as well: loads of 30
    and of 70 Hz look alike in samples that are spaced evenly. ``mean_sigma_w`` is the standard deviation of the mean
    power beside it, which samples in step with a harmonic do not tell from that.
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
    mean_sigma_w: float = 0.0

    def behind(self, tau_s: float, tau_sigma_s: float) -> Ripple:
        """The same, seen through a low-pass of a time constant known so well."""
        rivals = tuple(rival.behind(tau_s, tau_sigma_s) for rival in self.rivals)
        return replace(self, tau_s=tau_s, tau_sigma_s=tau_sigma_s, rivals=rivals)

    def settled(self, time_s: Column, power_w: Column, sample_period_s: float) -> Ripple:
        """The same with harmonics above the first as samples and expectation have them, each by its deviation.

        Ridge regression (Hoerl and Kennard, Technometrics 12, 1970), beside a mean that changes evenly and a frequency
        a little off. What it leaves open of the mean is ``mean_sigma_w``.
        """
        inside = (time_s >= self.start_s) & (time_s <= self.end_s)
        order, num = np.arange(1, HIGHEST_ALIAS + 1), len(self.seen_w)
        once = np.exp(2j * np.pi * self.frequency_hz * time_s[inside])
        turn = np.cumprod(np.repeat(once[:, None], HIGHEST_ALIAS, axis=1), axis=1)
        own, higher = turn[:, :num], turn[:, num:]
        since = (time_s[inside] - self.start_s) / (self.end_s - self.start_s) - 0.5
        faster = since * (1j * order[:num] * self.seen_w * own).real.sum(axis=1)
        rows = np.column_stack((own.real, -own.imag, faster, since, np.ones_like(since)))
        _, expected_w, in_step = self._aliases(sample_period_s)
        known = np.where(order > 1, (self.left_w / np.maximum(expected_w, 1e-9)) ** 2, 0.0)[:num]
        precision = np.concatenate((known, known, np.zeros(3))) + LEAST_PRECISION * len(since)
        inverse = np.linalg.inv(rows.T @ rows + np.diag(precision))
        real_w, imaginary_w = np.split((inverse @ (rows.T @ power_w[inside]))[:-3], 2)
        noise_w = self.left_w * np.sqrt(max(float(inverse[-1, -1]) - 1 / len(since), 0.0))
        # The mean takes a part of harmonics that are not among these.
        taken_w = np.abs(inverse[-1] @ rows.T @ higher) * expected_w[num:] / np.sqrt(2)
        first_w = SEEN_FRACTION * expected_w[0] / np.sqrt(2) if in_step[0] else 0.0
        mean_sigma_w = float(np.linalg.norm([noise_w, first_w, *taken_w]))
        return replace(self, seen_w=real_w + 1j * imaginary_w, mean_sigma_w=mean_sigma_w)

    def power_seen_w(self, time_s: Column) -> Column:
        """What it adds to samples at these times."""
        inside = (time_s >= self.start_s) & (time_s <= self.end_s)
        return np.where(inside, wave_sum(time_s, self.frequency_hz, self.seen_w), 0.0)

    def energy_j(self, time_s: Column) -> Column:
        """Joules since its start; as much as at its end after that."""
        inside_s = np.minimum(np.maximum(time_s, self.start_s), self.end_s)
        return np.asarray(wave_sum(inside_s, self.frequency_hz, self._amplitude_j) - self._begun_j)

    @cached_property
    def _amplitude_j(self) -> npt.NDArray[np.complex128]:
        return np.asarray(self.seen_w * self._gain(self.tau_s) / (1j * self._omega))

    @cached_property
    def _begun_j(self) -> float:
        return float(wave_sum(np.array([self.start_s]), self.frequency_hz, self._amplitude_j)[0])

    @cached_property
    def sigma_j(self) -> float:
        """Standard deviation of the joules at any time, by noise, an unknown low-pass and rivals."""
        noise_w = np.abs(self._gain(self.tau_s)) * self.left_w / np.sqrt(self.num_samples)
        wrong_w = np.abs(self.seen_w) * self._omega * self.tau_sigma_s
        time_s = self.start_s + (self.end_s - self.start_s) * np.arange(0, 1, RIVAL_STEP)
        apart_j = [np.std(self.energy_j(time_s) - rival.energy_j(time_s)) for rival in self.rivals]
        own_j = np.linalg.norm(np.hypot(noise_w, wrong_w / np.sqrt(2)) / self._omega)
        return float(np.hypot(own_j, max(apart_j, default=0.0)))

    def in_step_w(self, sample_period_s: float) -> float:
        """Doubt about the mean power that a counter sees by samples so far apart, by harmonics in step with them."""
        _, seen_w, in_step = self._aliases(sample_period_s)
        return float(np.linalg.norm(seen_w[in_step]) / np.sqrt(2))

    def drifting_j2(self, sample_period_s: float) -> float:
        """Variance of what a counter holds that adds up samples so far apart, by harmonics whose phase drifts past it.

        It takes each for a wave of the frequency that they are apart from its sampling.
        """
        apart_hz, seen_w, in_step = self._aliases(sample_period_s)
        return float(np.sum((seen_w[~in_step] / (2 * np.pi * apart_hz[~in_step])) ** 2) / 2)

    def _aliases(self, sample_period_s: float) -> tuple[Column, Column, npt.NDArray[np.bool_]]:
        """Of harmonics: how far each is from a multiple of the sampling, its amplitude in samples, and whether in step.

        The ``k``-th harmonic of a load that switches has about ``1/k`` of the first one's amplitude.
        """
        order = np.arange(1, HIGHEST_ALIAS + 1)
        apart_hz = np.abs((order * self.frequency_hz * sample_period_s + 0.5) % 1 - 0.5) / sample_period_s
        load_w = np.abs(self.seen_w[0] * self._gain(self.tau_s)[0])
        seen_w = load_w / order / np.hypot(1, 2 * np.pi * self.frequency_hz * order * self.tau_s)
        return apart_hz, seen_w, apart_hz * (self.end_s - self.start_s) < IN_STEP_TURNS

    @cached_property
    def _omega(self) -> Column:
        return np.asarray(2 * np.pi * self.frequency_hz * np.arange(1, len(self.seen_w) + 1))

    def _gain(self, tau_s: float) -> npt.NDArray[np.complex128]:
        return np.asarray(1 + 1j * self._omega * tau_s)


def find_ripple(time_s: Column, power_w: Column, noise_w: float) -> Ripple | None:
    """The ripple in samples of so much noise; ``None`` where there is none or it can't be found."""
    swing_w = float(power_w.std()) if len(time_s) else 0.0
    if len(time_s) < MIN_SAMPLES or swing_w < RIPPLE_NOISES * noise_w:
        return None
    middle_s = float(time_s.mean())
    fits = _fits(time_s - middle_s, power_w, swing_w)
    if not fits or fits[0].frequency_hz < RIPPLE_HZ or not _believed(fits[0].left_w, swing_w, noise_w):
        return None
    most_w = _rival_w(fits[0].left_w, noise_w)
    near = [_ripple(fit, time_s, middle_s) for fit in fits if fit.left_w <= most_w]
    if _ends_within(near[0], time_s, power_w, max(NOISE_TIMES * noise_w, BELIEVED_FRACTION * swing_w)):
        return None
    return replace(near[0], rivals=tuple(near[1:]))


def _fits(time_s: Column, power_w: Column, swing_w: float) -> list[HarmonicFit]:
    """The best first; beside a fast one the slow load that samples may take it for. None where all are slow."""
    peaks_hz = _peaks(time_s, power_w)
    if not len(peaks_hz):
        return []
    untuned = Fits(time_s, power_w, peaks_hz)
    untuned_w = untuned.left_w()
    least_w = max(float(untuned_w.min()), UNTUNED_FRACTION * swing_w)
    if not ((untuned_w <= UNTUNED_TIMES * least_w) & (peaks_hz + tuning_hz(time_s) >= RIPPLE_HZ)).any():
        return []
    likely = np.flatnonzero(untuned_w <= UNTUNED_RIVAL_TIMES * least_w).tolist()
    fits = untuned.tuned(likely)
    best = min(fits, key=lambda fit: fit.left_w)
    if best.frequency_hz >= RIPPLE_HZ:
        fits += _slow_alias(best, time_s, power_w)
    return sorted(fits, key=lambda fit: fit.left_w)


def _ends_within(ripple: Ripple, time_s: Column, power_w: Column, usual_w: float) -> bool:
    """Whether the load began or ended a little inside the samples, where it is taken to be beyond them."""
    off_w = power_w - ripple.power_seen_w(time_s)
    off_w = np.abs(off_w - middle(off_w))
    return bool(max(off_w[:NUM_OUTER].max(), off_w[-NUM_OUTER:].max()) > OUTER_TIMES * usual_w)


def _believed(left_w: float, swing_w: float, noise_w: float) -> bool:
    """Whether little is left of the swing, or no more than noise."""
    is_noise = left_w <= NOISE_TIMES * noise_w and left_w <= NOISY_FRACTION * swing_w
    return left_w <= BELIEVED_FRACTION * swing_w or is_noise


def _rival_w(left_w: float, noise_w: float) -> float:
    """What another frequency may leave that could be the true one: not much more where the rest is noise."""
    if left_w > NOISE_TIMES * noise_w:
        return RIVAL_TIMES * left_w
    return min(RIVAL_TIMES * left_w, float(np.hypot(left_w, RIVAL_NOISES * noise_w)))


def _slow_alias(fit: HarmonicFit, time_s: Column, power_w: Column) -> list[HarmonicFit]:
    """The slow load that evenly spaced samples would take it for; none where that is as fast."""
    sampled_hz = 1 / middle(time_s[1:] - time_s[:-1])
    alias_hz = abs(fit.frequency_hz - round(fit.frequency_hz / sampled_hz) * sampled_hz)
    slow_hz = max(alias_hz, 1 / float(time_s[-1] - time_s[0]))
    if slow_hz >= RIPPLE_HZ:
        return []
    return Fits(time_s, power_w, np.array([slow_hz])).tuned([0])


def _peaks(time_s: Column, power_w: Column) -> Column:
    """Frequencies whose one wave explains most of the samples; none where no wave explains much."""
    step_hz, waves, most = _spectrum(time_s, power_w)
    first = math.ceil(SLOWEST_HZ / step_hz)
    steps, explained = _energy.peaks(waves, most=most, first=first, most_peaks=NUM_PEAKS)
    if not len(steps) or explained[0] < EXPLAINED_FRACTION:
        return np.array([])
    return steps * step_hz


def _spectrum(time_s: Column, power_w: Column) -> tuple[float, npt.NDArray[np.complex128], float]:
    """Waves in steps from 0 Hz to the fastest, and the square of one that explains all of the samples' variance.

    Times are to the nearest 2 ms.
    """
    num = int(STEPS_PER_RESOLUTION * float(time_s[-1] - time_s[0]) / BIN_S) + 1
    length = 1 << (num - 1).bit_length()
    bins, squares_w2 = _energy.binned(time_s, power_w, bin_s=BIN_S, size=length)
    step_hz = 1 / (length * BIN_S)
    waves = np.fft.rfft(bins)[: int(FASTEST_HZ / step_hz) + 1]
    return step_hz, waves, max(len(time_s) * squares_w2 / 2, 1e-12)


def _ripple(fit: HarmonicFit, time_s: Column, middle_s: float) -> Ripple:
    """Of a fit to samples at these times less ``middle_s``."""
    phase = 2 * np.pi * fit.frequency_hz * np.arange(1, len(fit.seen_w) + 1) * middle_s
    return Ripple(
        start_s=float(time_s[0]) - EXTENSION_S,
        end_s=float(time_s[-1]) + EXTENSION_S,
        num_samples=len(time_s),
        frequency_hz=fit.frequency_hz,
        seen_w=fit.seen_w * np.exp(-1j * phase),
        left_w=fit.left_w,
    )
