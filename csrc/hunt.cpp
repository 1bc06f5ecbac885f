#include "hunt.h"

#include <utility>

namespace pybench {

namespace {

// A reading this long before a step is over before it, in the middle case also behind another GPU's.
constexpr int64_t kLead = 6 * kMillisecond;
constexpr int64_t kPast = kMillisecond / 2;
// A step told no better than this is read through, which tells it and those to come better again.
constexpr int64_t kNarrow = 24 * kMillisecond;
constexpr int64_t kPause = 4 * kMillisecond;
constexpr int64_t kLongPause = 8 * kMillisecond;  // for what will be refined
constexpr int64_t kLongestPeriod = 150 * kMillisecond;
constexpr int kMostDelays = 3;

}  // namespace

int64_t Hunt::horizon_ns() const { return rhythm_.known() ? rhythm_.horizon_ns() - 2 * kLead : INT64_MAX; }

void Hunt::begin(int64_t now) {
    if (on_ && !aimed_) return;  // what is being learned ends with a step after now, too
    on_ = true;
    found_ = false;
    num_delays_ = 0;
    aim(now);
}

void Hunt::aim(int64_t now) {
    last_.reset();
    // One that came too late comes earlier the next time: other GPUs of this poller may step at that moment.
    const int64_t lead_ns = kLead << 2 * num_delays_;
    aimed_ = rhythm_.next(now + lead_ns);
    if (!aimed_) return learn(now);
    next_ns_ = aimed_->low_ns - lead_ns;
    until_ns_ = aimed_->high_ns + kPast;
    pause_ns_ = kPause;
}

void Hunt::learn(int64_t from_ns) {
    rhythm_.forget();
    aimed_.reset();
    next_ns_ = from_ns;
    until_ns_ = from_ns + kLongestPeriod;
    pause_ns_ = kLongPause;
}

void Hunt::saw(const CounterRow& reading) {
    const std::optional<CounterRow> last = std::exchange(last_, reading);
    if (!last) in_time_ = !aimed_ || reading.after_ns <= aimed_->low_ns;
    if (last && reading.energy_mj < last->energy_mj) {
        rhythm_.forget();
        if (on_) learn(reading.after_ns);
        return;
    }
    const bool changed = last && reading.energy_mj != last->energy_mj;
    if (changed && (on_ || rhythm_.known())) rhythm_.saw({last->before_ns, reading.after_ns});
    if (on_) changed ? stepped(reading.after_ns) : go_on(reading.after_ns);
}

void Hunt::stepped(int64_t now) {
    if (rhythm_.known()) return end(true);
    next_ns_ = now + kLongPause;
    until_ns_ = now + kLongestPeriod;
    pause_ns_ = kPause;
}

void Hunt::go_on(int64_t now) {
    if (now < until_ns_ && in_time_) {
        const bool read_through = !aimed_ || aimed_->width_ns() > kNarrow;
        next_ns_ = read_through ? now + pause_ns_ : until_ns_;
    } else if (!in_time_) {
        delayed(now);
    } else if (aimed_) {
        learn(now);  // what was foretold did not come
    } else {
        end(false);  // the counter stands still
    }
}

void Hunt::delayed(int64_t now) { ++num_delays_ <= kMostDelays ? aim(now) : end(false); }

void Hunt::failed(int64_t now) {
    if (on_) delayed(now);
}

void Hunt::end(bool found) {
    on_ = false;
    found_ = found;
}

}  // namespace pybench
