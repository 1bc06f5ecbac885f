#include "clock.h"

#include <time.h>

#include <fstream>

namespace pybench {

namespace {

constexpr int kOffsetTries = 5;

int64_t read_clock(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return now.tv_sec * kSecond + now.tv_nsec;
}

}  // namespace

int64_t now_ns() { return read_clock(CLOCK_MONOTONIC); }

// The tightest of a few tries, so that a preemption between the two clocks does not count as offset.
int64_t realtime_offset_ns() {
    int64_t best_span = INT64_MAX, best_offset = 0;
    for (int i = 0; i < kOffsetTries; ++i) {
        const int64_t before = now_ns(), realtime = read_clock(CLOCK_REALTIME), after = now_ns();
        if (after - before >= best_span) continue;
        best_span = after - before;
        best_offset = realtime - (before + after) / 2;
    }
    return best_offset;
}

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

}  // namespace pybench
