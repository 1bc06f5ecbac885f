// Finds steps of the energy counter with few readings, since one takes milliseconds of CPU time.
#pragma once

#include <cstdint>
#include <optional>

#include "clock.h"
#include "record.h"

namespace pybench {

// Earliest and latest time of an event.
struct Span {
    int64_t low_ns, high_ns;

    int64_t width_ns() const { return high_ns - low_ns; }
};

// The grid on which a board publishes its energy counter, by the steps seen.
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

// Reads before and after a step that the grid predicts; without a grid, continuously until two steps have been seen.
class StepSearch {
  public:
    // Looks for a step after now. A search for a predicted step begins again.
    void begin(int64_t now);
    bool on() const { return on_; }
    bool found() const { return found_; }         // by the last search, once it is over
    int64_t next_ns() const { return next_ns_; }  // when the counter is to be read
    bool known() const { return grid_.known(); }
    int64_t predictable_until_ns() const;  // when a search should begin, or steps can no longer be predicted
    // A reading that was made, for the search or not.
    void add_reading(const CounterRow& reading);
    void failed(int64_t now);  // to make one
    void give_up() { end(false); }

  private:
    void predict(int64_t now);
    void find_grid(int64_t from_ns);
    void stepped(int64_t now);
    void go_on(int64_t now);
    void delayed(int64_t now);
    void end(bool found);

    PublicationGrid grid_;
    std::optional<CounterRow> last_;  // of this search, or of none
    std::optional<Span> predicted_;   // the step that was expected
    bool on_ = false, found_ = false;
    bool in_time_ = false;  // the first reading was over before that step
    int64_t next_ns_ = 0, until_ns_ = 0, pause_ns_ = 0;
    int num_delays_ = 0;
};

}  // namespace pybench
