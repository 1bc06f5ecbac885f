// When the energy counter publishes, as far as its steps show: a board publishes on a grid of its own.
#pragma once

#include <cstdint>
#include <optional>

#include "clock.h"

namespace pybench {

// From the earliest to the latest moment at which something can have happened.
struct Span {
    int64_t low_ns, high_ns;

    int64_t width_ns() const { return high_ns - low_ns; }
};

class PublicationGrid {
  public:
    // A step came within this span. The first two must follow on each other: they give the period.
    void add_step(Span step);
    void reset();
    bool known() const { return period_.has_value(); }

    // The first step that can't come before after_ns; none where its neighbours could be mistaken for it.
    std::optional<Span> next(int64_t after_ns) const;
    // The last step that can be expected well, at the earliest; INT64_MAX while nothing is known.
    int64_t predictable_until_ns() const;

  private:
    Span predicted(int64_t number) const;

    Span first_{};
    int64_t since_first_ = 0;     // how many steps the newest came after it
    std::optional<Span> step_;    // the newest
    std::optional<Span> period_;  // the shortest and the longest that it can be
};

}  // namespace pybench
