#include "sampled_counter.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace pybench {

namespace {

// Power behind the low-pass within a piece; the load's power if tau_s is 0. Constant beyond the ends.
double seen_w(const SeenCurve& curve, size_t piece, double at_s) {
    const double begun_s = curve.time_s[piece], length_s = std::max(curve.time_s[piece + 1] - begun_s, 1e-12);
    const double load_w = (curve.energy_j[piece + 1] - curve.energy_j[piece]) / length_s;
    if (!(curve.tau_s > 0)) return load_w;
    return load_w + (curve.seen_w[piece] - load_w) * std::exp(-std::max(at_s - begun_s, 0.0) / curve.tau_s);
}

}  // namespace

void counted_j(const SeenCurve& curve, double phase_s, double period_s, const double* at_s, size_t size,
               double* counted) {
    if (size == 0) return;
    const auto [first_s, last_s] = std::minmax_element(at_s, at_s + size);
    const double start_s = std::floor((*first_s - period_s - phase_s) / period_s) * period_s + phase_s;
    // Running sum of the samples, one beyond the last time.
    std::vector<double> sums_j(static_cast<size_t>((*last_s - start_s) / period_s) + 2);
    double sum_j = 0.0;
    for (size_t number = 0, piece = 0; number < sums_j.size(); ++number) {
        const double sample_s = start_s + static_cast<double>(number) * period_s;
        while (piece + 2 < curve.size && curve.time_s[piece + 1] <= sample_s) ++piece;
        sums_j[number] = sum_j += seen_w(curve, piece, sample_s) * period_s;
    }
    // A sample is spread over the period after it.
    for (size_t at = 0; at < size; ++at) {
        const double since = std::max((at_s[at] - start_s) / period_s - 1, 0.0);
        const size_t number = std::min(static_cast<size_t>(since), sums_j.size() - 2);
        counted[at] = sums_j[number] + (since - static_cast<double>(number)) * (sums_j[number + 1] - sums_j[number]);
    }
}

}  // namespace pybench
