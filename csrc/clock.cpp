#include "clock.h"

#include <time.h>

#include <fstream>

namespace pybench {

namespace {

int64_t read_clock(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return now.tv_sec * kSecond + now.tv_nsec;
}

}  // namespace

int64_t now_ns() { return read_clock(CLOCK_MONOTONIC); }

int64_t realtime_ns() { return read_clock(CLOCK_REALTIME); }

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
