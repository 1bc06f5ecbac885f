// A call that may hang in the driver, given a limit.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include "patience.h"

namespace pybench {

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
