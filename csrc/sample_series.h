// What the driver's samples of the power show of themselves: how far apart they are, and which are new.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "nvml_api.h"
#include "record.h"

namespace pybench {

class SampleSeries {
  public:
    // The first that are drained; too few show nothing.
    void measure(const std::vector<PowerSample>& samples);
    // The newest stamp that was drained, by the wall clock as it was set then or is now, the earlier of both.
    uint64_t last_seen_us(const OffsetRow& now) const;
    // Those that were not drained before. A wall clock that is set moves later stamps: theirs are moved back.
    std::vector<PowerSample> unseen(const std::vector<PowerSample>& samples, const OffsetRow& now);

    // How often they should be drained, together with polls, where the driver keeps so many.
    std::optional<int64_t> drain_period_ns(unsigned num_kept, int64_t polled_period_ns) const;
    // They are no further apart than polls would be, and the newest is of now.
    bool shows_power(int64_t polled_period_ns, const OffsetRow& now) const;

  private:
    std::optional<int64_t> spacing_ns_;
    int64_t newest_us_ = 0;  // by the clock as it was first set
    int64_t set_by_us_ = 0;  // when the newest was stamped: a driver may follow late, or not
    bool was_set_ = false;
};

}  // namespace pybench
