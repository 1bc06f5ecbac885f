#include "sample_series.h"

#include <algorithm>
#include <cstdlib>

#include "clock.h"

namespace pybench {

namespace {

constexpr int64_t kLongestPeriod = 2 * kSecond;
constexpr size_t kEnoughSamples = 16;
// Samples that the driver hands over in batches are this old at most.
constexpr int64_t kFresh = kSecond;

int64_t realtime_us(const OffsetRow& at) { return (at.t_ns + at.realtime_offset_ns) / 1000; }

// The first sample that was stamped after the clock was last set: where stamps jump by about as much. Their number if
// none.
size_t first_after(const std::vector<PowerSample>& samples, int64_t moved_us) {
    size_t found = samples.size();
    int64_t best_us = std::abs(moved_us) / 2;
    for (size_t i = 1; i < samples.size(); ++i) {
        const int64_t off_us = std::abs(samples[i].realtime_us - samples[i - 1].realtime_us - moved_us);
        if (off_us > best_us) continue;
        best_us = off_us;
        found = i;
    }
    return found;
}

// The first of the last ones whose stamps rise: a driver keeps samples from before its clock was set back for a while.
size_t last_rise(const std::vector<PowerSample>& samples, size_t end) {
    for (size_t i = end; i > 1; --i) {
        if (samples[i - 1].realtime_us < samples[i - 2].realtime_us) return i - 1;
    }
    return 0;
}

}  // namespace

void SampleSeries::measure(const std::vector<PowerSample>& samples) {
    if (samples.size() < kEnoughSamples) return;
    const int64_t span_us = samples.back().realtime_us - samples.front().realtime_us;
    spacing_ns_ = span_us * 1000 / static_cast<int64_t>(samples.size() - 1);
}

uint64_t SampleSeries::last_seen_us(const OffsetRow& now) const {
    return static_cast<uint64_t>(std::max(newest_us_ + std::min(set_by_us_, now.set_by_ns / 1000), int64_t{0}));
}

std::vector<PowerSample> SampleSeries::unseen(const std::vector<PowerSample>& samples, const OffsetRow& now) {
    const int64_t set_by_us = now.set_by_ns / 1000, moved_us = set_by_us - set_by_us_, now_us = realtime_us(now);
    const auto is_new = [&](int64_t stamp_us) { return stamp_us > newest_us_ && stamp_us <= now_us; };
    size_t moved_from = 0;
    if (moved_us != 0 && !samples.empty()) {
        was_set_ = true;
        moved_from = first_after(samples, moved_us);
        // Without a jump all are of one side, where the last one is of now.
        const int64_t age_us = now_us - (samples.back().realtime_us - set_by_us);
        if (moved_from == samples.size() && std::abs(age_us) < std::abs(age_us - moved_us)) moved_from = 0;
    }
    std::vector<PowerSample> found;
    const size_t first = was_set_ ? last_rise(samples, moved_from == 0 ? samples.size() : moved_from) : 0;
    for (size_t i = first; i < samples.size(); ++i) {
        if (i >= moved_from) set_by_us_ = set_by_us;
        const int64_t stamp_us = samples[i].realtime_us - set_by_us_;
        if (was_set_ && !is_new(stamp_us)) continue;
        found.push_back({stamp_us, samples[i].power_mw});
        newest_us_ = std::max(newest_us_, stamp_us);
    }
    return found;
}

// Three quarters of how long the driver keeps a sample, 2.4 s on H200: what comes later than the rest loses samples.
std::optional<int64_t> SampleSeries::drain_period_ns(unsigned num_kept, int64_t polled_period_ns) const {
    if (!spacing_ns_) return std::nullopt;
    const int64_t longest_ns = std::min(num_kept * *spacing_ns_ * 3 / 4, kLongestPeriod);
    return std::max(longest_ns / polled_period_ns, int64_t{1}) * polled_period_ns;
}

bool SampleSeries::shows_power(int64_t polled_period_ns, const OffsetRow& now) const {
    return spacing_ns_ > 0 && spacing_ns_ < polled_period_ns && realtime_us(now) - newest_us_ < kFresh / 1000;
}

}  // namespace pybench
