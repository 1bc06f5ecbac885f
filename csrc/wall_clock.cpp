#include "wall_clock.h"

#include <cstdlib>

#include "clock.h"

namespace pybench {

namespace {

// The kernel slews a clock by at most 500 us/s, and adjtime by as much again. What moves further was set.
constexpr int64_t kSlewed = kMillisecond, kSlewedPerSecond = kMillisecond;

}  // namespace

OffsetRow WallClock::read() {
    const std::lock_guard<std::mutex> lock(mutex_);
    OffsetRow now{now_ns(), realtime_offset_ns(), 0};
    if (last_) {
        const int64_t moved_ns = now.realtime_offset_ns - (last_->realtime_offset_ns + last_->set_by_ns);
        const int64_t slewed_ns = kSlewed + (now.t_ns - last_->t_ns) / (kSecond / kSlewedPerSecond);
        now.set_by_ns = last_->set_by_ns + (std::abs(moved_ns) > slewed_ns ? moved_ns : 0);
        now.realtime_offset_ns -= now.set_by_ns;
    }
    last_ = now;
    return now;
}

}  // namespace pybench
