// Limits searches for a counter's step without a caller: a burst at first, rare in the long run.
#pragma once

#include <algorithm>
#include <cstdint>

#include "clock.h"

namespace pybench {

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
