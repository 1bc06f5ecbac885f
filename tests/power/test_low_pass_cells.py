"""The low-pass undone cell by cell, against the same over whole columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from pybench import _energy

TAU_S, PERIOD_S, GAP_S = 0.0109, 0.02, 0.3
Column = npt.NDArray[np.float64]


def expected(time_s: Column, power_w: Column, noise_w: Column, tau_s: float) -> tuple[Column, float]:
    """Nine rows of pieces and the blind time: two pieces a cell, but one where no step lies in it."""
    length_s = np.diff(time_s)
    decay = np.exp(-length_s / tau_s) if tau_s else np.zeros(len(length_s))
    load_w = np.maximum((power_w[1:] - power_w[:-1] * decay) / (1 - decay), 0)
    load_w = np.where(length_s > GAP_S, (power_w[1:] + power_w[:-1]) / 2, load_w)
    own_w = noise_w[1:]
    margin_w = 3 * own_w * np.sqrt(1 + decay**2) / (1 - decay)
    counted_j2 = (own_w * length_s) ** 2 * np.maximum((1 + decay) / (1 - decay) - 2 * tau_s / length_s, 0)
    before_w, after_w = np.append(load_w[:1], load_w[:-1]), np.append(load_w[1:], load_w[-1:])
    rise_w, next_w = load_w - before_w, after_w - load_w
    near_w, jump_w = np.sort(np.abs([rise_w, next_w]), axis=0)
    stepped = (rise_w * next_w > 0) & (near_w > margin_w)
    part = np.where(stepped, rise_w / np.where(stepped, after_w - before_w, 1), 0)
    back_s = np.minimum(-tau_s * np.log1p(-part * (1 - decay)), length_s * (1 - 1e-9))
    alone_w = np.where(stepped | np.append(False, stepped[:-1]), 0, rise_w)
    seen = np.abs(alone_w) > margin_w
    blind_s = np.maximum(length_s - tau_s * np.log(np.where(seen, np.abs(alone_w) / margin_w, 1)), 0) * seen
    beside_w = np.append(near_w[:1], near_w[:-1]) + np.append(near_w[1:], near_w[-1:])
    open_w = np.where(stepped, np.minimum(beside_w, jump_w), np.sqrt(near_w * jump_w))
    open_w[[0, -1]] = jump_w[[0, -1]]
    open_w[open_w <= margin_w] = 0
    doubts_j = [0.4 * open_w * length_s, own_w * length_s, 0.5e-3 * jump_w * (jump_w > margin_w)]
    doubts_j += [alone_w * blind_s / 12**0.5, (length_s > GAP_S) * length_s * power_w.max() / 2]
    peaks_w = near_w[(rise_w * next_w < 0) & (near_w > np.maximum(margin_w, 0.15 * np.ptp(load_w)))]
    alike = max(0, 1 - peaks_w.std() / peaks_w.mean() / 0.25) if len(peaks_w) >= 6 else 0.0
    missed_j = 0.07 * PERIOD_S * np.abs(rise_w) * (np.abs(rise_w) > margin_w)
    cells = [np.linalg.norm(doubts_j, axis=0), missed_j, missed_j**2, counted_j2]
    cells += [0.9 * alike * open_w * length_s, 0.4 * open_w * length_s]
    at_step_w = before_w + (power_w[:-1] - before_w) * np.exp(-(length_s - back_s) / max(tau_s, 1e-9))
    early_j = np.where(stepped, before_w, load_w) * (length_s - back_s) - alone_w * blind_s / 2
    two, late = back_s > 0, back_s / length_s
    open_j = 0.4 * open_w * length_s + np.abs(alone_w) * blind_s
    more_j = early_j + after_w * back_s - (power_w[1:] + power_w[:-1]) / 2 * length_s - tau_s * np.diff(power_w)
    excess_j = open_j * biases(more_j, open_j, missed_j**2, length_s <= GAP_S)
    early = [time_s[1:] - back_s, early_j - excess_j * (1 - late), np.where(two, at_step_w, power_w[1:])]
    after = [time_s[1:], after_w * back_s - excess_j * late, power_w[1:]]
    rows = []
    for (end_s, energy_j, seen_w), share in ((early, 1 - late), (after, late)):
        sigma_j, *sums = cells
        rows.append([end_s, energy_j, sigma_j * np.sqrt(share), seen_w, *(each * share for each in sums)])
    pieces = np.moveaxis(np.array(rows), 0, 2).reshape(9, -1)
    kept = np.ravel(np.column_stack((np.ones(len(two), dtype=bool), two)))
    return pieces[:, kept], float(np.abs(alone_w) @ blind_s / max(np.abs(rise_w).sum(), 1e-9))


def biases(more_j: Column, open_j: Column, mean_j2: Column, known: npt.NDArray[np.bool_]) -> Column:
    """By which part of what is open each cell has more than the mean of 50 samples on each side, 0.1 expected."""
    numbers = np.arange(len(known))
    near = (np.abs(numbers[:, None] - numbers) <= 50) & known
    more, openness, variance = near @ more_j, near @ open_j, near @ mean_j2
    shown = (0.1 * openness) ** 2 / np.maximum((0.1 * openness) ** 2 + variance, 1e-300)
    return np.asarray(known * np.divide(more, openness, out=np.zeros(len(known)), where=openness > 0) * shown)


def samples(name: str) -> tuple[Column, Column]:
    """Times of an H200's series and a power behind its low-pass, or none."""
    rng = np.random.default_rng(len(name))
    time_s = np.cumsum(rng.uniform(0.012, 0.028, 300))
    if name == "gap":
        time_s[150:] += 0.5
    if name == "pair":
        return time_s[:2], np.array([100.0, 400.0])
    steps_w = {"steps": rng.uniform(100, 700, 40).repeat(8)[:300], "peaks": np.where(np.arange(300) % 5, 120.0, 640.0)}
    target_w = steps_w.get(name, rng.uniform(100, 700, 300))
    power_w = [400.0]
    for target, length_s in zip(target_w[1:], np.diff(time_s), strict=True):
        power_w.append(target + (power_w[-1] - target) * np.exp(-length_s / TAU_S))
    return time_s, np.array(power_w)


@pytest.mark.parametrize("tau_s", [TAU_S, 0.0])
@pytest.mark.parametrize("name", ["steps", "peaks", "random", "gap", "pair"])
def test_each_cell_has_its_pieces(name: str, tau_s: float) -> None:
    time_s, power_w = samples(name)
    noise_w = np.full(len(power_w), 0.1) + 2e-3 * power_w
    pieces, blind_s = _energy.undone(time_s, power_w, noise_w, tau_s=tau_s, period_s=PERIOD_S, gap_s=GAP_S)
    wanted, wanted_blind_s = expected(time_s, power_w, noise_w, tau_s)
    assert pieces == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    assert blind_s == pytest.approx(wanted_blind_s, rel=1e-9)


def test_a_step_between_steady_powers_is_found_in_its_cell() -> None:
    """By hand: 100 W, then 300 W from 7 ms after a sample; 0.7 J and 3.9 J in that cell of 20 ms."""
    time_s = np.linspace(0, 0.1, 6)
    since_s = np.maximum(time_s - 0.047, 0)
    power_w = 300 - 200 * np.exp(-since_s / TAU_S)
    noise_w = np.full(6, 1e-3)
    pieces, _ = _energy.undone(time_s, power_w, noise_w, tau_s=TAU_S, period_s=PERIOD_S, gap_s=GAP_S)
    assert pieces[0] == pytest.approx([0.02, 0.04, 0.047, 0.06, 0.08, 0.1], abs=1e-9)
    assert pieces[1] == pytest.approx([2.0, 2.0, 0.7, 3.9, 6.0, 6.0], abs=1e-6)


def test_less_than_two_samples_are_refused() -> None:
    one = np.ones(1)
    with pytest.raises(ValueError, match="less than two samples"):
        _energy.undone(one, one, one, tau_s=TAU_S, period_s=PERIOD_S, gap_s=GAP_S)
