// Whose turn it is to learn its counter's rhythm: GPUs that read on and on at the same time on few threads blur each
// other's steps.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "clock.h"

namespace pybench {

// A turn ends by itself after a while, since a driver call may hang in it.
class Turns {
  public:
    explicit Turns(size_t num_gpus) : until_ns_(num_gpus) {}

    // How many may learn side by side; one until it is told.
    void allow(size_t num_turns) { num_turns_ = num_turns; }

    // Takes a turn for an owner, or keeps the one it has.
    bool take(size_t owner, int64_t now) {
        if (until_ns_[owner] < now && num_taken(now) >= num_turns_) return false;
        until_ns_[owner] = now + kLongest;
        return true;
    }

    void give_back(size_t owner) { until_ns_[owner] = 0; }

  private:
    static constexpr int64_t kLongest = 3 * kSecond;

    size_t num_taken(int64_t now) const {
        size_t number = 0;
        for (const std::atomic<int64_t>& until_ns : until_ns_) number += until_ns >= now;
        return number;
    }

    std::vector<std::atomic<int64_t>> until_ns_;  // by owner; two that take at once are one too many, and no harm
    std::atomic<size_t> num_turns_{1};
};

}  // namespace pybench
