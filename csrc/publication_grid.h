// The grid on which a board publishes its energy counter, by the steps seen.
#pragma once

#include <cstdint>
#include <optional>

#include "clock.h"

namespace pybench {

// Earliest and latest time of an event.
struct Span {
    int64_t low_ns, high_ns;

    int64_t width_ns() const { return high_ns - low_ns; }
};

class PublicationGrid {
  public:
    // Adds a step within this span. The first two must be consecutive: they give the period.
    void add_step(Span step);
    void reset();
    bool known() const { return period_.has_value(); }

    // Span of the first step after after_ns; nullopt if adjacent steps could be confused with it.
    std::optional<Span> next(int64_t after_ns) const;
    // Earliest time of the last step that is well predicted; INT64_MAX without a grid.
    int64_t predictable_until_ns() const;

  private:
    Span predicted(int64_t number) const;

    Span first_{};
    int64_t since_first_ = 0;     // steps from the first to the newest
    std::optional<Span> step_;    // the newest
    std::optional<Span> period_;  // shortest and longest possible
};

}  // namespace pybench
