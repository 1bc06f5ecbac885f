#include "spectrum.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace pybench {

Bins::Bins(const double* time_s, const double* power_w, size_t num_samples, double bin_s, size_t size)
    : sum_w(size, 0.0) {
    double mean_w = 0.0;
    for (size_t at = 0; at < num_samples; ++at) mean_w += power_w[at];
    mean_w /= std::max<double>(static_cast<double>(num_samples), 1.0);
    for (size_t at = 0; at < num_samples; ++at) {
        const double bin = std::nearbyint((time_s[at] - time_s[0]) / bin_s), swing_w = power_w[at] - mean_w;
        if (!(bin >= 0 && bin < static_cast<double>(size))) throw std::invalid_argument("a time in no bin");
        sum_w[static_cast<size_t>(bin)] += swing_w;
        squares_w2 += swing_w * swing_w;
    }
}

std::vector<Peak> Spectrum::peaks(size_t first, size_t most_peaks) const {
    std::vector<double> height(size);
    for (size_t step = 0; step < size; ++step) height[step] = std::norm(wave[step]);
    std::vector<size_t> tops;
    for (size_t step = std::max<size_t>(first, 1); step + 1 < size; ++step)
        if (height[step] >= height[step - 1] && height[step] > height[step + 1]) tops.push_back(step);
    const auto end = tops.begin() + static_cast<ptrdiff_t>(std::min(most_peaks, tops.size()));
    std::partial_sort(tops.begin(), end, tops.end(),
                      [&](size_t one, size_t other) { return height[one] > height[other]; });
    tops.erase(end, tops.end());
    std::vector<Peak> found;
    for (const size_t top : tops) {
        const double before = explained(top - 1), own = explained(top), after = explained(top + 1);
        const double part = (before - after) / std::min(2 * (before - 2 * own + after), -1e-12);
        found.push_back({static_cast<double>(top) + std::clamp(part, -0.5, 0.5), own});
    }
    return found;
}

}  // namespace pybench
