// Sets CLOCK_REALTIME of one process: by WALL_CLOCK_SET_BY_MS, once it is WALL_CLOCK_AT_MS old. To be loaded with
// LD_PRELOAD.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace {

int64_t variable_ns(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? 0 : std::atoll(value) * 1'000'000;
}

int64_t nanoseconds(const timespec& time) { return time.tv_sec * 1'000'000'000LL + time.tv_nsec; }

int64_t monotonic_ns() {
    timespec now{};
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return nanoseconds(now);
}

const int64_t set_ns = monotonic_ns() + variable_ns("WALL_CLOCK_AT_MS");
const int64_t set_by_ns = variable_ns("WALL_CLOCK_SET_BY_MS");

}  // namespace

extern "C" {

int64_t wall_clock_set_by_ns(int64_t t_ns) { return t_ns >= set_ns ? set_by_ns : 0; }

int clock_gettime(clockid_t clock, timespec* now) {
    const long code = syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME && code == 0) {
        const int64_t t_ns = nanoseconds(*now) + wall_clock_set_by_ns(monotonic_ns());
        now->tv_sec = t_ns / 1'000'000'000;
        now->tv_nsec = t_ns % 1'000'000'000;
    }
    return static_cast<int>(code);
}

}  // extern "C"
