// Which samples are new where somebody sets the wall clock: of a driver that stamps by it, and of one that does not.
#include "sample_series.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr int64_t kSpacingUs = 20'000, kKept = 120, kDrainUs = 1'800'000, kEpochUs = 1'700'000'000'000'000;

struct Set {
    int64_t at_us, by_us;
};

int64_t set_by_us(const std::vector<Set>& sets, int64_t t_us) {
    int64_t sum_us = 0;
    for (const Set& set : sets) sum_us += t_us >= set.at_us ? set.by_us : 0;
    return sum_us;
}

// Drains a driver that keeps 120 samples 20 ms apart; each must come once, at its time.
void drain(const std::string& name, const std::vector<Set>& sets, bool driver_follows, int64_t lead_us) {
    pybench::SampleSeries series;
    std::vector<int64_t> found_us;
    for (int64_t t_us = 7'000; t_us < 30'000'000; t_us += kDrainUs) {
        const pybench::OffsetRow now{t_us * 1000, kEpochUs * 1000, set_by_us(sets, t_us) * 1000};
        const auto last_seen_us = static_cast<int64_t>(series.last_seen_us(now));
        std::vector<pybench::PowerSample> kept;
        const int64_t newest = (t_us + lead_us) / kSpacingUs;
        for (int64_t i = std::max(newest - kKept + 1, int64_t{0}); i <= newest; ++i) {
            const int64_t taken_us = i * kSpacingUs;
            const int64_t stamp_us = kEpochUs + taken_us + (driver_follows ? set_by_us(sets, taken_us) : 0);
            if (stamp_us > last_seen_us) kept.push_back({stamp_us, i});
        }
        for (const pybench::PowerSample& sample : series.unseen(kept, now)) {
            if (sample.realtime_us - kEpochUs != sample.power_mw * kSpacingUs) {
                std::printf("%s: sample %ld was placed at %ld us\n", name.c_str(), sample.power_mw,
                            sample.realtime_us - kEpochUs);
                std::exit(1);
            }
            found_us.push_back(sample.power_mw);
        }
    }
    for (size_t i = 0; i < found_us.size(); ++i) {
        if (found_us[i] == static_cast<int64_t>(i)) continue;
        std::printf("%s: sample %zu is missing or comes twice\n", name.c_str(), i);
        std::exit(1);
    }
    if (found_us.size() < 1400) {
        std::printf("%s: only %zu samples\n", name.c_str(), found_us.size());
        std::exit(1);
    }
}

}  // namespace

int main() {
    constexpr int64_t kSecondUs = 1'000'000;
    const std::vector<int64_t> by_us = {-3600 * kSecondUs, -10 * kSecondUs, -2 * kSecondUs, -1'200'000,
                                        -300'000,          -50'000,         50'000,         300'000,
                                        1'200'000,         2 * kSecondUs,   10 * kSecondUs, 86'400 * kSecondUs};
    for (const int64_t one_us : by_us) {
        for (int64_t at_us = 8'000'000; at_us < 8'000'000 + kDrainUs; at_us += 77'000) {
            for (const int64_t lead_us : {0, 15'000}) {
                const std::string name = std::to_string(one_us) + " us at " + std::to_string(at_us);
                drain(name, {{at_us, one_us}}, true, lead_us);
                drain(name + ", not followed", {{at_us, one_us}}, false, lead_us);
                drain(name + " and back", {{at_us, one_us}, {at_us + 6'500'000, -one_us}}, true, lead_us);
                drain(name + " twice", {{at_us, one_us}, {at_us + 2'100'000, one_us}}, true, lead_us);
            }
        }
    }
    std::puts("ok");
}
