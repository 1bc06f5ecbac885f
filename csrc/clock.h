// Clocks, all in nanoseconds.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "record.h"

namespace pybench {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kSecond = 1000 * kMillisecond;

int64_t now_ns();       // CLOCK_MONOTONIC
std::string boot_id();  // of the boot that CLOCK_MONOTONIC counts from
void sleep_until(int64_t deadline_ns);

// An absolute schedule: ticks that came too late are skipped and counted, never made up for.
struct Cadence {
    int64_t period_ns = kSecond;
    int64_t next_ns = 0;

    bool due(int64_t now) const { return now >= next_ns; }

    // Moves to the first tick after now; returns how many were skipped.
    uint64_t advance(int64_t now) {
        const int64_t missed = (now - next_ns) / period_ns;
        next_ns += (missed + 1) * period_ns;
        return static_cast<uint64_t>(missed);
    }
};

// CLOCK_REALTIME beside CLOCK_MONOTONIC. Somebody may set it while a recording runs: by how much is kept apart.
// For any thread.
class WallClock {
  public:
    OffsetRow read();

  private:
    std::mutex mutex_;
    std::optional<OffsetRow> last_;
};

}  // namespace pybench
