#include "clock.h"

#include <time.h>

#include <cstdlib>
#include <fstream>

namespace pybench {

namespace {

// The kernel slews a clock by at most 500 us/s, and adjtime by as much again. What moves further was set.
constexpr int64_t kSlewed = kMillisecond, kSlewedPerSecond = kMillisecond;
constexpr int kOffsetTries = 5;

int64_t read_clock(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return now.tv_sec * kSecond + now.tv_nsec;
}

// The tightest of a few tries, so that a preemption between the two clocks does not count as offset.
int64_t offset_ns() {
    int64_t best_span = INT64_MAX, best_offset = 0;
    for (int i = 0; i < kOffsetTries; ++i) {
        const int64_t before = now_ns(), realtime = read_clock(CLOCK_REALTIME), after = now_ns();
        if (after - before >= best_span) continue;
        best_span = after - before;
        best_offset = realtime - (before + after) / 2;
    }
    return best_offset;
}

}  // namespace

int64_t now_ns() { return read_clock(CLOCK_MONOTONIC); }

std::string boot_id() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    std::getline(file, id);
    return id;
}

void sleep_until(int64_t deadline_ns) {
    const timespec deadline{deadline_ns / kSecond, deadline_ns % kSecond};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, nullptr) != 0) {
    }
}

OffsetRow WallClock::read() {
    const std::lock_guard<std::mutex> lock(mutex_);
    OffsetRow now{now_ns(), offset_ns(), 0};
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
