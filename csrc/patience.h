// Waiting time for another thread's driver call, without standstills of the machine.
#pragma once

#include <algorithm>
#include <cstdint>

#include "clock.h"

namespace pybench {

// A later wake-up means that the machine or the container stood still.
constexpr int64_t kMostLate = 20 * kMillisecond;

// Counts pauses of nominal length. A limit by the clock would expire during a standstill.
class Patience {
  public:
    void pause(int64_t length_ns) {
        const int64_t before_ns = now_ns();
        sleep_until(before_ns + length_ns);
        waited_ns_ += std::min(now_ns() - before_ns, length_ns + kMostLate);
    }

    int64_t waited_ns() const { return waited_ns_; }

    // Waiting time since start_ns, without standstills.
    int64_t waited_ns(int64_t since_ns) const { return waited_ns_ - std::max<int64_t>(since_ns - begin_ns_, 0); }

  private:
    const int64_t begin_ns_ = now_ns();
    int64_t waited_ns_ = 0;
};

}  // namespace pybench
