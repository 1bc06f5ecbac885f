// How often a GPU may search for its counter's step without a caller: some times at once, seldom in the long run.
#pragma once

#include <algorithm>
#include <cstdint>

#include "clock.h"

namespace pybench {

class SearchBudget {
  public:
    // The clock may be younger than what is to spare: a machine that booted a minute ago has all of it, too.
    int64_t next_ns() const { return next_ns_; }  // from when on the next search is allowed

    void spend(int64_t now) { next_ns_ = std::max(next_ns_, now - kSpare * kPeriod) + kPeriod; }

  private:
    static constexpr int64_t kPeriod = 30 * kSecond;
    static constexpr int64_t kSpare = 16;

    int64_t next_ns_ = INT64_MIN;
};

}  // namespace pybench
