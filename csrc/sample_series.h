// What the driver's samples of the power show of themselves: how far apart they are, and which was the newest.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "nvml_api.h"

namespace pybench {

class SampleSeries {
  public:
    // The first that are drained; too few show nothing.
    void measure(const std::vector<PowerSample>& samples);
    void add(const PowerSample& sample);

    uint64_t newest_us() const { return newest_us_; }  // on CLOCK_REALTIME
    // How often they should be drained, together with polls, where the driver keeps so many.
    std::optional<int64_t> drain_period_ns(unsigned num_kept, int64_t polled_period_ns) const;
    // They are no further apart than polls would be, and the newest is of now.
    bool shows_power(int64_t polled_period_ns) const;

  private:
    std::optional<int64_t> spacing_ns_;
    uint64_t newest_us_ = 0;
};

}  // namespace pybench
