#include "hunt.h"

#include <utility>

namespace pybench {

namespace {

// A reading this long before a step is over before it, in the middle case also behind another GPU's.
constexpr int64_t kLead = 6 * kMillisecond;
constexpr int64_t kPast = kMillisecond / 2;
// A span wider than this is read through, which makes it narrow again.
constexpr int64_t kNarrow = 12 * kMillisecond;
constexpr int64_t kPause = 4 * kMillisecond;
constexpr int64_t kLearningPause = 8 * kMillisecond;
constexpr int64_t kLongestPeriod = 150 * kMillisecond;
constexpr int kMostMisses = 3;

// Whether a reading of the old value leaves the step to come.
bool encloses(const Span& step, const CounterRow& reading, bool begun) {
    return reading.after_ns <= step.low_ns || (begun && reading.before_ns < step.high_ns + kPast);
}

}  // namespace

void Hunt::begin(int64_t now) {
    on_ = true;
    found_ = false;
    misses_ = 0;
    aim(now);
}

void Hunt::aim(int64_t now) {
    last_.reset();
    // A reading that comes too late is aimed earlier the next time: other GPUs of this poller may step at that moment.
    const int64_t lead_ns = kLead << misses_;
    const std::optional<Span> step = misses_ < kMostMisses ? rhythm_.next(now + lead_ns) : std::nullopt;
    if (!step) {
        rhythm_.forget();
        read_on(now, now + kLongestPeriod);
    } else if (step->width_ns() > kNarrow) {
        read_on(step->low_ns - lead_ns, step->high_ns + kLead);
    } else {
        aimed_ = step;
        next_ns_ = step->low_ns - lead_ns;
    }
}

void Hunt::read_on(int64_t from_ns, int64_t until_ns) {
    aimed_.reset();
    next_ns_ = from_ns;
    until_ns_ = until_ns;
}

void Hunt::saw(const CounterRow& reading) {
    const std::optional<CounterRow> last = std::exchange(last_, reading);
    if (last && reading.energy_mj < last->energy_mj) {
        rhythm_.forget();
        if (on_) read_on(reading.after_ns, reading.after_ns + kLongestPeriod);
        return;
    }
    const bool changed = last && reading.energy_mj != last->energy_mj;
    if (changed && (on_ || rhythm_.known())) rhythm_.saw({last->before_ns, reading.after_ns});
    if (!on_) return;
    if (changed) {
        stepped(reading);
    } else if (aimed_ && encloses(*aimed_, reading, last.has_value())) {
        next_ns_ = aimed_->high_ns + kPast;
    } else if (aimed_ || reading.after_ns > until_ns_) {
        missed(reading.after_ns);
    } else {
        next_ns_ = reading.after_ns + (rhythm_.known() ? kPause : kLearningPause);
    }
}

void Hunt::failed(int64_t now) {
    if (on_) missed(now);
}

void Hunt::stepped(const CounterRow& reading) {
    if (rhythm_.known()) return end(true);
    read_on(reading.after_ns + kLearningPause, reading.after_ns + kLongestPeriod);
}

// Without a rhythm there is nothing more to try: the counter stands still.
void Hunt::missed(int64_t now) {
    if (!rhythm_.known()) return end(false);
    ++misses_;
    aim(now);
}

void Hunt::end(bool found) {
    on_ = false;
    found_ = found;
}

}  // namespace pybench
