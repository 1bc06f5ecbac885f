// Limits of searches for a counter's step: how many GPUs at a time, and how often without a caller.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "clock.h"

namespace pybench {

// Which GPUs may search at a time: GPUs that read continuously on few threads blur each other's steps. A slot is freed
// by itself after a while, since a driver call may hang in it.
class SearchSlots {
  public:
    explicit SearchSlots(size_t num_gpus) : until_ns_(num_gpus) {}

    // How many may search at once; one by default.
    void allow(size_t num_slots) { num_slots_ = num_slots; }

    // Takes a slot for an owner, or keeps the one it has.
    bool take(size_t owner, int64_t now) {
        if (until_ns_[owner] < now && num_taken(now) >= num_slots_) return false;
        until_ns_[owner] = now + kLongest;
        return true;
    }

    void release(size_t owner) { until_ns_[owner] = 0; }

  private:
    static constexpr int64_t kLongest = 3 * kSecond;

    size_t num_taken(int64_t now) const {
        size_t number = 0;
        for (const std::atomic<int64_t>& until_ns : until_ns_) number += until_ns >= now;
        return number;
    }

    std::vector<std::atomic<int64_t>> until_ns_;  // by owner; two that take at once are one too many, and no harm
    std::atomic<size_t> num_slots_{1};
};

// Searches without a caller: a burst at first, rare in the long run.
class SearchBudget {
  public:
    // Works just after boot, with a clock younger than the budget.
    int64_t next_ns() const { return next_ns_; }  // time of the next allowed search

    void spend(int64_t now) { next_ns_ = std::max(next_ns_, now - kSpare * kPeriod) + kPeriod; }

  private:
    static constexpr int64_t kPeriod = 30 * kSecond;
    static constexpr int64_t kSpare = 16;

    int64_t next_ns_ = INT64_MIN;
};

}  // namespace pybench
