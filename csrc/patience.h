// How long another thread's driver call is waited for, without the time in which nothing could come of it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "clock.h"

namespace pybench {

// A thread that wakes later than this shows that the machine or the container stood still, and other threads with it.
constexpr int64_t kMostLate = 20 * kMillisecond;

// Counts pauses, without what they last too long. There is no limit by the clock beside it, which would end a wait as
// soon as the machine goes on: it ends after some number of pauses.
class Patience {
  public:
    void pause(int64_t length_ns) {
        const int64_t before_ns = now_ns();
        sleep_until(before_ns + length_ns);
        waited_ns_ += std::min(now_ns() - before_ns, length_ns + kMostLate);
    }

    int64_t waited_ns() const { return waited_ns_; }

    // How much of it for something that is under way since then; of what began after a standstill, less.
    int64_t waited_ns(int64_t since_ns) const { return waited_ns_ - std::max<int64_t>(since_ns - begin_ns_, 0); }

  private:
    const int64_t begin_ns_ = now_ns();
    int64_t waited_ns_ = 0;
};

}  // namespace pybench
