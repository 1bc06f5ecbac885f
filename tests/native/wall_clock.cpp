// Sets CLOCK_REALTIME of one process: by WALL_CLOCK_SET_BY_MS, WALL_CLOCK_AT_MS after its call of
// wall_clock_begin. To be loaded with LD_PRELOAD.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <set>

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

std::atomic<int64_t> set_ns{INT64_MAX};
const int64_t set_by_ns = variable_ns("WALL_CLOCK_SET_BY_MS");

int64_t set_by_at(int64_t t_ns) { return t_ns >= set_ns ? set_by_ns : 0; }

std::mutex kept_mutex;  // guards kept_ns
std::set<int64_t> kept_ns;

}  // namespace

extern "C" {

void wall_clock_begin() { set_ns = monotonic_ns() + variable_ns("WALL_CLOCK_AT_MS"); }

// The fake driver asks this of each sample that it has kept until a call.
int64_t wall_clock_set_by_ns(int64_t t_ns) {
    const std::lock_guard<std::mutex> lock(kept_mutex);
    kept_ns.insert(t_ns);
    return set_by_at(t_ns);
}

// CLOCK_MONOTONIC times of all samples that the driver had kept at some call, as many as there is room for.
size_t wall_clock_kept_ns(int64_t* times_ns, size_t room) {
    const std::lock_guard<std::mutex> lock(kept_mutex);
    const size_t number = std::min(room, kept_ns.size());
    std::copy_n(kept_ns.begin(), number, times_ns);
    return number;
}

int clock_gettime(clockid_t clock, timespec* now) {
    const long code = syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME && code == 0) {
        const int64_t t_ns = nanoseconds(*now) + set_by_at(monotonic_ns());
        now->tv_sec = t_ns / 1'000'000'000;
        now->tv_nsec = t_ns % 1'000'000'000;
    }
    return static_cast<int>(code);
}

}  // extern "C"
