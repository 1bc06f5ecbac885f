#include "low_pass.h"

#include <algorithm>
#include <cmath>

namespace pybench {

namespace {

// Standard deviation of a cell between unsteady neighbours, as a fraction of jump times length (simulated loads). The
// counter rescales all variances together.
constexpr double kUnsteady = 0.4;
// Standard deviation in s of a jump's time.
constexpr double kMomentS = 0.5e-3;
// Standard deviations of noise that a jump must exceed.
constexpr double kNoiseMargin = 3.0;
// Standard deviation of a sum of samples at a jump of random phase, as a fraction of jump times period: computed for
// 20 ms behind 10.9 ms, and similar for other low-passes.
constexpr double kSampledFraction = 0.07;
// Prior standard deviation of the bias of steps placed between unsteady neighbours, as a fraction of their
// uncertainty: it was 1 % of the joules of decode rounds of 27 ms.
constexpr double kBias = 0.1;
// Samples on each side whose mean shows that bias.
constexpr size_t kReach = 50;

double squared(double value) { return value * value; }

struct Cell {
    double length_s, decay;
    double load_w;             // weighted mean of the load
    double margin_w;           // its error by noise, at most
    double sum_noise_w;        // noise of the last sample, once per cell in a sum of cells
    double counted_noise_w;    // noise of the load that one sample does not show
    double before_w, after_w;  // of the adjacent cells
    double near_w, jump_w;     // smaller and larger difference to them
    bool stepped;

    double rise_w() const { return load_w - before_w; }
    double next_w() const { return after_w - load_w; }
};

Cell cell_of(const NoisySamples& samples, size_t at) {
    const double first_w = samples.power_w[at], last_w = samples.power_w[at + 1];
    const double length_s = samples.time_s[at + 1] - samples.time_s[at], tau_s = samples.tau_s;
    const double decay = tau_s > 0 ? std::exp(-length_s / tau_s) : 0.0, noise_w = samples.noise_w[at + 1];
    // The last sample of a gap shows nothing of its beginning.
    const double load_w =
        length_s > samples.gap_s ? (last_w + first_w) / 2 : std::max((last_w - first_w * decay) / (1 - decay), 0.0);
    // White noise behind the low-pass, weighted by exp(-t/tau), less its plain mean over the cell.
    const double counted = std::sqrt(std::max((1 + decay) / (1 - decay) - 2 * tau_s / length_s, 0.0));
    Cell cell{};
    cell.length_s = length_s, cell.decay = decay, cell.load_w = load_w;
    cell.margin_w = kNoiseMargin * (noise_w * std::sqrt(1 + decay * decay) / (1 - decay));
    cell.sum_noise_w = noise_w, cell.counted_noise_w = noise_w * counted;
    return cell;
}

std::vector<Cell> cells_of(const NoisySamples& samples) {
    std::vector<Cell> cells;
    cells.reserve(samples.size);
    for (size_t at = 0; at + 1 < samples.size; ++at) cells.push_back(cell_of(samples, at));
    for (size_t at = 0; at < cells.size(); ++at) {
        Cell& cell = cells[at];
        cell.before_w = cells[at > 0 ? at - 1 : 0].load_w;
        cell.after_w = cells[std::min(at + 1, cells.size() - 1)].load_w;
        const double rise_w = std::abs(cell.rise_w()), next_w = std::abs(cell.next_w());
        cell.near_w = std::min(rise_w, next_w), cell.jump_w = std::max(rise_w, next_w);
        cell.stepped = cell.rise_w() * cell.next_w() > 0 && cell.near_w > cell.margin_w;
    }
    return cells;
}

// The jump in W that the cell's neighbours leave unknown; 0 within the noise, which has its own term.
double unsteady_w(const std::vector<Cell>& cells, size_t at) {
    const Cell& cell = cells[at];
    const size_t last = cells.size() - 1;
    double jump_w = std::sqrt(cell.near_w * cell.jump_w);
    if (cell.stepped)
        jump_w = std::min(cells[at > 0 ? at - 1 : 0].near_w + cells[std::min(at + 1, last)].near_w, cell.jump_w);
    // The first and the last cell lack a neighbour that would show a step.
    if (at == 0 || at == last) jump_w = cell.jump_w;
    return jump_w > cell.margin_w ? jump_w : 0.0;
}

// Time between the load's step and the cell's end; 0 without a step.
double back_s_of(const Cell& cell, double tau_s) {
    if (!cell.stepped) return 0.0;
    const double part = cell.rise_w() / (cell.after_w - cell.before_w);
    return std::min(-tau_s * std::log1p(-part * (1 - cell.decay)), cell.length_s * (1 - 1e-9));
}

// A jump without a step of its own. It came within blind_s after the cell's start, where its weight is below the noise.
struct Unseen {
    double jump_w, blind_s;
};

Unseen unseen(const std::vector<Cell>& cells, size_t at, double tau_s) {
    const Cell& cell = cells[at];
    if (cell.stepped || (at > 0 && cells[at - 1].stepped)) return {0.0, 0.0};
    const double jump_w = cell.rise_w();
    if (!(std::abs(jump_w) > cell.margin_w)) return {jump_w, 0.0};
    const double visible_s = tau_s * std::log(std::max(std::abs(jump_w) / cell.margin_w, 1.0));
    return {jump_w, std::max(cell.length_s - visible_s, 0.0)};
}

// Standard deviations and errors of a whole cell.
Piece uncertainty(const Cell& cell, double unsteady_w, Unseen jump, double period_s, double gap_w) {
    const double length_s = cell.length_s, rise_w = std::abs(cell.rise_w());
    Piece whole{};
    whole.sigma_j = std::sqrt(squared(kUnsteady * unsteady_w * length_s) + squared(cell.sum_noise_w * length_s) +
                              squared(cell.jump_w > cell.margin_w ? kMomentS * cell.jump_w : 0.0) +
                              squared(jump.jump_w * jump.blind_s) / 12 + squared(length_s * gap_w));
    whole.missed_j = rise_w > cell.margin_w ? kSampledFraction * period_s * rise_w : 0.0;
    whole.counted_j2 = squared(whole.missed_j) + squared(cell.counted_noise_w * length_s);
    whole.unsteady_j = kUnsteady * unsteady_w * length_s;
    return whole;
}

// A piece that is this share of its cell.
Piece piece_of(const Piece& cell, double share, double end_s, double energy_j) {
    const double part = std::max(share, 0.0);
    return {end_s,
            energy_j,
            cell.sigma_j * std::sqrt(part),
            cell.missed_j * part,
            cell.counted_j2 * part,
            cell.unsteady_j * part};
}

// For a cell: energy of its pieces less that by the samples' mean, its uncertainty, and the variance of the mean.
struct Balance {
    double excess_j, uncertain_j, mean_j2;
};

// Energy over a cell by its samples: their mean, and the rise of the low-pass's charge.
double sampled_j(const NoisySamples& samples, size_t at) {
    const double first_w = samples.power_w[at], last_w = samples.power_w[at + 1];
    const double length_s = samples.time_s[at + 1] - samples.time_s[at];
    return (first_w + last_w) / 2 * length_s + samples.tau_s * (last_w - first_w);
}

// Bias of each cell as a fraction of its uncertainty, by the balance of the cells around it.
std::vector<double> biases(const std::vector<Balance>& balances) {
    const size_t size = balances.size();
    std::vector<double> bias(size);
    Balance near{};
    const auto add = [&](const Balance& balance, double times) {
        near.excess_j += times * balance.excess_j, near.uncertain_j += times * balance.uncertain_j,
            near.mean_j2 += times * balance.mean_j2;
    };
    for (size_t at = 0; at < std::min(kReach, size); ++at) add(balances[at], 1.0);
    for (size_t at = 0; at < size; ++at) {
        if (at + kReach < size) add(balances[at + kReach], 1.0);
        if (at > kReach) add(balances[at - kReach - 1], -1.0);
        if (!(balances[at].uncertain_j > 0)) continue;
        const double prior_j2 = squared(kBias * near.uncertain_j);
        bias[at] = near.excess_j / near.uncertain_j * prior_j2 / (prior_j2 + std::max(near.mean_j2, 0.0));
    }
    return bias;
}

}  // namespace

double middle_deviation(const double* power_w, size_t size) {
    std::vector<double> off(size - 2);
    for (size_t at = 0; at < off.size(); ++at)
        off[at] = std::abs(power_w[at + 1] - (power_w[at] + power_w[at + 2]) / 2) / std::max(power_w[at + 1], 1.0);
    const auto upper = off.begin() + static_cast<ptrdiff_t>(off.size() / 2);
    std::nth_element(off.begin(), upper, off.end());
    return off.size() % 2 == 1 ? *upper : (*upper + *std::max_element(off.begin(), upper)) / 2;
}

Undone undone(const NoisySamples& samples) {
    const std::vector<Cell> cells = cells_of(samples);
    const double tau_s = samples.tau_s;
    const double highest_w = *std::max_element(samples.power_w, samples.power_w + samples.size);
    Undone result{{}, 0.0};
    result.pieces.reserve(2 * cells.size());
    std::vector<Balance> balances;
    balances.reserve(cells.size());
    double rises_w = 0.0;
    for (size_t at = 0; at < cells.size(); ++at) {
        const Cell& cell = cells[at];
        const double length_s = cell.length_s, back_s = back_s_of(cell, tau_s);
        const Unseen jump = unseen(cells, at, tau_s);
        result.blind_s += std::abs(jump.jump_w) * jump.blind_s;
        rises_w += std::abs(cell.rise_w());
        const double gap_w = length_s > samples.gap_s ? highest_w / 2 : 0.0;
        const Piece whole = uncertainty(cell, unsteady_w(cells, at), jump, samples.period_s, gap_w);
        const double early_w = cell.stepped ? cell.before_w : cell.load_w;
        const double early_j = early_w * (length_s - back_s) - jump.jump_w * jump.blind_s / 2;
        const double whole_j = early_j + cell.after_w * back_s;
        balances.push_back(length_s > samples.gap_s ? Balance{}
                                                    : Balance{whole_j - sampled_j(samples, at),
                                                              whole.unsteady_j + std::abs(jump.jump_w) * jump.blind_s,
                                                              squared(whole.missed_j)});
        const double end_s = samples.time_s[at + 1], late = back_s / length_s;
        if (back_s > 0) {
            result.pieces.push_back(piece_of(whole, 1 - late, end_s - back_s, early_j));
            result.pieces.push_back(piece_of(whole, late, end_s, cell.after_w * back_s));
        } else {
            result.pieces.push_back(piece_of(whole, 1.0, end_s, early_j));
        }
    }
    const std::vector<double> bias = biases(balances);
    size_t piece = 0;
    for (size_t at = 0; at < cells.size(); ++at) {
        const double start_s = samples.time_s[at], end_s = samples.time_s[at + 1];
        const double excess_w = bias[at] * balances[at].uncertain_j / (end_s - start_s);
        for (double last_s = start_s; last_s < end_s; last_s = result.pieces[piece++].end_s)
            result.pieces[piece].energy_j -= excess_w * (result.pieces[piece].end_s - last_s);
    }
    result.blind_s /= std::max(rises_w, 1e-9);
    return result;
}

}  // namespace pybench
