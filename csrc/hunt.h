// Finds steps of the energy counter with few readings, since one takes milliseconds of CPU time.
#pragma once

#include <cstdint>
#include <optional>

#include "record.h"
#include "rhythm.h"

namespace pybench {

// Reads before and after a step that the rhythm foretells; without one, on and on until two steps have been seen.
class Hunt {
  public:
    // Looks for a step after now. A hunt for one that was foretold begins again.
    void begin(int64_t now);
    bool on() const { return on_; }
    bool found() const { return found_; }         // the last hunt, once it is over
    int64_t next_ns() const { return next_ns_; }  // when the counter is to be read
    bool known() const { return rhythm_.known(); }
    int64_t horizon_ns() const;  // when a hunt should begin, or steps can no longer be foretold well
    // A reading that was made, for the hunt or not.
    void saw(const CounterRow& reading);
    void failed(int64_t now);  // to make one
    void give_up() { end(false); }

  private:
    void aim(int64_t now);
    void learn(int64_t from_ns);
    void stepped(int64_t now);
    void go_on(int64_t now);
    void delayed(int64_t now);
    void end(bool found);

    Rhythm rhythm_;
    std::optional<CounterRow> last_;  // of this hunt, or of no hunt
    std::optional<Span> aimed_;       // the step that was foretold
    bool on_ = false, found_ = false;
    bool in_time_ = false;  // the first reading was over before that step
    int64_t next_ns_ = 0, until_ns_ = 0, pause_ns_ = 0;
    int num_delays_ = 0;
};

}  // namespace pybench
