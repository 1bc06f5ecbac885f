// Waiting for a driver call that may hang, without standstills of the machine.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

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

// Runs function on a thread of its own; false when it has not returned within the limit. The thread is then left to
// end by itself: function must own all it touches and throw nothing.
template <typename Function>
bool returns_within(int64_t limit_ns, Function function) {
    constexpr int64_t kPause = kMillisecond / 2;
    auto done = std::make_shared<std::atomic<bool>>(false);
    std::thread thread([done, function = std::move(function)]() mutable {
        {
            const Function own = std::move(function);  // destroyed before done is set
            own();
        }
        *done = true;
    });
    Patience patience;
    while (!*done && patience.waited_ns() < limit_ns) patience.pause(kPause);
    if (!*done) {
        thread.detach();
        return false;
    }
    thread.join();
    return true;
}

}  // namespace pybench
