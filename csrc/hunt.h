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
    // Looks for the first step after now. One that is under way begins again.
    void begin(int64_t now);
    bool on() const { return on_; }
    bool found() const { return found_; }         // the last hunt, once it is over
    int64_t next_ns() const { return next_ns_; }  // when the counter is to be read
    int64_t horizon_ns() const { return rhythm_.horizon_ns(); }
    // A reading that was made, for the hunt or not.
    void saw(const CounterRow& reading);
    void failed(int64_t now);  // to make one
    void give_up() { end(false); }

  private:
    void aim(int64_t now);
    void read_on(int64_t from_ns, int64_t until_ns);
    void stepped(const CounterRow& reading);
    void missed(int64_t now);
    void end(bool found);

    Rhythm rhythm_;
    std::optional<CounterRow> last_;  // of this hunt, or of no hunt
    std::optional<Span> aimed_;       // the step that a pair of readings is to enclose
    bool on_ = false, found_ = false;
    int64_t next_ns_ = 0, until_ns_ = 0;
    int misses_ = 0;
};

}  // namespace pybench
