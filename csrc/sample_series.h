// The driver's power samples: their spacing, and which are new.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "nvml_api.h"
#include "record.h"

namespace pybench {

class SampleSeries {
  public:
    // Takes the first drained samples; too few are ignored.
    void measure(const std::vector<PowerSample>& samples);
    // Newest drained stamp, by the earlier of the wall clock then and now.
    uint64_t last_seen_us(const OffsetRow& now) const;
    // The new samples. Stamps after a setting of the wall clock are moved back.
    std::vector<PowerSample> unseen(const std::vector<PowerSample>& samples, const OffsetRow& now);

    // Period of draining for this capacity of the driver's buffer.
    std::optional<int64_t> drain_period_ns(unsigned num_kept, int64_t polled_period_ns) const;
    // Whether samples are at least as frequent as polls, and current.
    bool shows_power(int64_t polled_period_ns, const OffsetRow& now) const;

  private:
    std::optional<int64_t> spacing_ns_;
    int64_t newest_us_ = 0;  // by the clock as it was first set
    int64_t set_by_us_ = 0;  // at the newest stamp: a driver may follow a setting late, or never
    bool was_set_ = false;
};

}  // namespace pybench
