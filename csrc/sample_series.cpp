#include "sample_series.h"

#include <algorithm>

#include "clock.h"

namespace pybench {

namespace {

constexpr int64_t kLongestPeriod = 2 * kSecond;
constexpr size_t kEnoughSamples = 16;
// Samples that the driver hands over in batches are this old at most.
constexpr int64_t kFresh = kSecond;

}  // namespace

void SampleSeries::measure(const std::vector<PowerSample>& samples) {
    if (samples.size() < kEnoughSamples) return;
    const int64_t span_us = samples.back().realtime_us - samples.front().realtime_us;
    spacing_ns_ = span_us * 1000 / static_cast<int64_t>(samples.size() - 1);
}

void SampleSeries::add(const PowerSample& sample) {
    newest_us_ = std::max(newest_us_, static_cast<uint64_t>(sample.realtime_us));
}

// Three quarters of how long the driver keeps a sample, 2.4 s on H200: what comes later than the rest loses samples.
std::optional<int64_t> SampleSeries::drain_period_ns(unsigned num_kept, int64_t polled_period_ns) const {
    if (!spacing_ns_) return std::nullopt;
    const int64_t longest_ns = std::min(num_kept * *spacing_ns_ * 3 / 4, kLongestPeriod);
    return std::max(longest_ns / polled_period_ns, int64_t{1}) * polled_period_ns;
}

bool SampleSeries::shows_power(int64_t polled_period_ns) const {
    const int64_t realtime_ns = now_ns() + realtime_offset_ns();
    return spacing_ns_ > 0 && spacing_ns_ < polled_period_ns &&
           realtime_ns - static_cast<int64_t>(newest_us_) * 1000 < kFresh;
}

}  // namespace pybench
