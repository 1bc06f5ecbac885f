#include "low_pass.h"

#include <algorithm>
#include <cmath>

namespace pybench {

namespace {

// What is not resolved: part of the jump times the cell for cells between unsteady neighbours, and a moment for every
// jump. The counter rescales all of it together.
constexpr double kUnsteady = 0.4;
constexpr double kMomentS = 0.5e-3;
constexpr double kNoiseMargin = 3.0;
// A sum of samples 20 ms apart behind 10.9 ms is off by this at a jump of 1 W at a random phase, 1.4 ms of it; other
// low-passes alike, by the part of a cell that they do not bridge.
constexpr double kSampledFraction = 0.07;
// Peaks within one cell at random phases differ in height by half of it, standard deviation over mean; peaks that keep
// one phase to the samples are alike, and then all are wrong the same way.
constexpr double kRandomSpread = 0.25;
constexpr size_t kMinPeaks = 6;
constexpr double kPeakFraction = 0.15;
constexpr double kUnresolved = 0.9;
// Steps that are placed where the load is open are off the same way again and again, by this part of what is open: by
// 1 % of the joules of decode rounds of 27 ms. The mean of so many samples on each side shows by how much.
constexpr double kBias = 0.1;
constexpr size_t kReach = 50;

double squared(double value) { return value * value; }

// load_w is the weighted mean of the load, margin_w what it may be off by noise. A sample's noise counts in its own
// cell and, with the other sign, in the next: over a sum of cells it is no more than sum_noise_w of each, the sample's
// own. counted_noise_w is how far the mean power of a cell is from what one sample shows of it, where the noise is the
// load's own and not the sensor's.
struct Cell {
    double length_s, decay, load_w, margin_w, sum_noise_w, counted_noise_w;
    // From the cell before and to the next, the smaller and the larger of both.
    double before_w, after_w, near_w, jump_w;
    bool stepped;

    double rise_w() const { return load_w - before_w; }
    double next_w() const { return after_w - load_w; }
};

Cell cell_of(const NoisySamples& samples, size_t at) {
    const double first_w = samples.power_w[at], last_w = samples.power_w[at + 1];
    const double length_s = samples.time_s[at + 1] - samples.time_s[at], tau_s = samples.tau_s;
    const double decay = tau_s > 0 ? std::exp(-length_s / tau_s) : 0.0, noise_w = samples.noise_w[at + 1];
    // Long after its beginning a cell's last sample shows nothing of it.
    const double load_w =
        length_s > samples.gap_s ? (last_w + first_w) / 2 : std::max((last_w - first_w * decay) / (1 - decay), 0.0);
    // White noise behind the low-pass, seen through a weight of exp(-t/tau), less its plain mean over the cell.
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

// How alike the peaks within one cell are: 1 where all have one height, 0 where they come at any phase.
double likeness(const std::vector<Cell>& cells) {
    const auto lower = [](const Cell& one, const Cell& other) { return one.load_w < other.load_w; };
    const auto [lowest, highest] = std::minmax_element(cells.begin(), cells.end(), lower);
    const double least_w = kPeakFraction * (highest->load_w - lowest->load_w);
    double sum_w = 0.0, sum_w2 = 0.0;
    std::vector<double> heights_w;
    for (const Cell& cell : cells)
        if (cell.rise_w() * cell.next_w() < 0 && cell.near_w > std::max(cell.margin_w, least_w)) {
            heights_w.push_back(cell.near_w);
            sum_w += cell.near_w;
        }
    if (heights_w.size() < kMinPeaks) return 0.0;
    const double num = static_cast<double>(heights_w.size()), mean_w = sum_w / num;
    for (const double height_w : heights_w) sum_w2 += squared(height_w - mean_w);
    return std::max(0.0, 1 - std::sqrt(sum_w2 / num) / mean_w / kRandomSpread);
}

// How long after a cell's start a jump of this size leaves no mark on the cell's mean.
double blind_s(double alone_w, const Cell& cell, double tau_s) {
    if (!(std::abs(alone_w) > cell.margin_w)) return 0.0;
    return std::max(cell.length_s - tau_s * std::log(std::max(std::abs(alone_w) / cell.margin_w, 1.0)), 0.0);
}

// The jump that the cell's neighbours leave open; what is within the noise is none: noise has its own term.
double unsteady_w(const std::vector<Cell>& cells, size_t at) {
    const Cell& cell = cells[at];
    const size_t last = cells.size() - 1;
    double open_w = std::sqrt(cell.near_w * cell.jump_w);
    if (cell.stepped)
        open_w = std::min(cells[at > 0 ? at - 1 : 0].near_w + cells[std::min(at + 1, last)].near_w, cell.jump_w);
    // The first and the last cell lack a neighbour that would show a step.
    if (at == 0 || at == last) open_w = cell.jump_w;
    return open_w > cell.margin_w ? open_w : 0.0;
}

// How long before the cell's end the load took the next one's power; 0 where it did not.
double back_s_of(const Cell& cell, double tau_s) {
    if (!cell.stepped) return 0.0;
    const double part = cell.rise_w() / (cell.after_w - cell.before_w);
    return std::min(-tau_s * std::log1p(-part * (1 - cell.decay)), cell.length_s * (1 - 1e-9));
}

// A jump that has no step of its own: somewhere in the time after the cell's start in which its weight drowns in noise.
struct Unseen {
    double alone_w, blind_s;
};

Unseen unseen(const std::vector<Cell>& cells, size_t at, double tau_s) {
    if (cells[at].stepped || (at > 0 && cells[at - 1].stepped)) return {0.0, 0.0};
    const double alone_w = cells[at].rise_w();
    return {alone_w, blind_s(alone_w, cells[at], tau_s)};
}

// What is open of a whole cell; its end, joules and power are left to its pieces.
Piece doubts(const Cell& cell, double open_w, Unseen jump, double period_s, double gap_w) {
    const double length_s = cell.length_s, rise_w = std::abs(cell.rise_w());
    Piece whole{};
    whole.sigma_j = std::sqrt(squared(kUnsteady * open_w * length_s) + squared(cell.sum_noise_w * length_s) +
                              squared(cell.jump_w > cell.margin_w ? kMomentS * cell.jump_w : 0.0) +
                              squared(jump.alone_w * jump.blind_s) / 12 + squared(length_s * gap_w));
    whole.missed_j = rise_w > cell.margin_w ? kSampledFraction * period_s * rise_w : 0.0;
    whole.sampled_j2 = squared(whole.missed_j);
    whole.counted_j2 = squared(cell.counted_noise_w * length_s);
    whole.unsteady_j = kUnsteady * open_w * length_s;
    whole.unresolved_j = kUnresolved * open_w * length_s;
    return whole;
}

// A piece that takes this share of its cell.
Piece piece_of(const Piece& cell, double share, double end_s, double energy_j, double seen_w) {
    const double part = std::max(share, 0.0);
    return {end_s,
            energy_j,
            cell.sigma_j * std::sqrt(part),
            seen_w,
            cell.missed_j * part,
            cell.sampled_j2 * part,
            cell.counted_j2 * part,
            cell.unresolved_j * part,
            cell.unsteady_j * part};
}

// Of each cell: what the pieces have more than the samples' mean, what is open, and the mean's own variance.
struct Balance {
    double more_j, open_j, mean_j2;
};

// What the load had over a cell by its samples: behind a low-pass, what they sum up to and the rise of its charge.
double sampled_j(const NoisySamples& samples, size_t at) {
    const double first_w = samples.power_w[at], last_w = samples.power_w[at + 1];
    const double length_s = samples.time_s[at + 1] - samples.time_s[at];
    return (first_w + last_w) / 2 * length_s + samples.tau_s * (last_w - first_w);
}

// By which part of what is open each cell has too much.
std::vector<double> biases(const std::vector<Balance>& balances) {
    const size_t size = balances.size();
    std::vector<double> found(size);
    Balance near{};
    const auto add = [&](const Balance& each, double times) {
        near.more_j += times * each.more_j, near.open_j += times * each.open_j, near.mean_j2 += times * each.mean_j2;
    };
    for (size_t at = 0; at < std::min(kReach, size); ++at) add(balances[at], 1.0);
    for (size_t at = 0; at < size; ++at) {
        if (at + kReach < size) add(balances[at + kReach], 1.0);
        if (at > kReach) add(balances[at - kReach - 1], -1.0);
        if (!(balances[at].open_j > 0)) continue;
        const double expected_j2 = squared(kBias * near.open_j);
        found[at] = near.more_j / near.open_j * expected_j2 / (expected_j2 + std::max(near.mean_j2, 0.0));
    }
    return found;
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
    const double alike = likeness(cells), tau_s = samples.tau_s;
    const double highest_w = *std::max_element(samples.power_w, samples.power_w + samples.size);
    Undone found{{}, 0.0};
    found.pieces.reserve(2 * cells.size());
    std::vector<Balance> balances;
    balances.reserve(cells.size());
    double rises_w = 0.0;
    for (size_t at = 0; at < cells.size(); ++at) {
        const Cell& cell = cells[at];
        const double length_s = cell.length_s, back_s = back_s_of(cell, tau_s);
        const Unseen jump = unseen(cells, at, tau_s);
        found.blind_s += std::abs(jump.alone_w) * jump.blind_s;
        rises_w += std::abs(cell.rise_w());
        const double gap_w = length_s > samples.gap_s ? highest_w / 2 : 0.0;
        Piece whole = doubts(cell, unsteady_w(cells, at), jump, samples.period_s, gap_w);
        whole.unresolved_j *= alike;

        const double early_w = cell.stepped ? cell.before_w : cell.load_w;
        const double early_j = early_w * (length_s - back_s) - jump.alone_w * jump.blind_s / 2;
        const double whole_j = early_j + cell.after_w * back_s;
        balances.push_back(length_s > samples.gap_s
                               ? Balance{}
                               : Balance{whole_j - sampled_j(samples, at),
                                         whole.unsteady_j + std::abs(jump.alone_w) * jump.blind_s, whole.sampled_j2});
        const double end_s = samples.time_s[at + 1], end_w = samples.power_w[at + 1], late = back_s / length_s;
        if (back_s > 0) {
            const double decayed = std::exp(-(length_s - back_s) / std::max(tau_s, 1e-9));
            const double at_step_w = cell.before_w + (samples.power_w[at] - cell.before_w) * decayed;
            found.pieces.push_back(piece_of(whole, 1 - late, end_s - back_s, early_j, at_step_w));
            found.pieces.push_back(piece_of(whole, late, end_s, cell.after_w * back_s, end_w));
        } else {
            found.pieces.push_back(piece_of(whole, 1.0, end_s, early_j, end_w));
        }
    }
    const std::vector<double> bias = biases(balances);
    size_t piece = 0;
    for (size_t at = 0; at < cells.size(); ++at) {
        const double begun_s = samples.time_s[at], end_s = samples.time_s[at + 1];
        const double excess_w = bias[at] * balances[at].open_j / (end_s - begun_s);
        for (double last_s = begun_s; last_s < end_s; last_s = found.pieces[piece++].end_s)
            found.pieces[piece].energy_j -= excess_w * (found.pieces[piece].end_s - last_s);
    }
    found.blind_s /= std::max(rises_w, 1e-9);
    return found;
}

}  // namespace pybench
