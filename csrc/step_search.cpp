#include "step_search.h"

#include <utility>

namespace pybench {

namespace {

// A reading this long before a step is over before it, in the middle case also behind another GPU's.
constexpr int64_t kLead = 6 * kMillisecond;
constexpr int64_t kPast = kMillisecond / 2;
// A span wider than this is read through, which narrows it and those of later steps.
constexpr int64_t kNarrow = 24 * kMillisecond;
constexpr int64_t kPause = 4 * kMillisecond;
constexpr int64_t kLongPause = 8 * kMillisecond;  // for what will be refined
constexpr int64_t kLongestPeriod = 150 * kMillisecond;
constexpr int kMostDelays = 3;

}  // namespace

int64_t StepSearch::predictable_until_ns() const {
    return grid_.known() ? grid_.predictable_until_ns() - 2 * kLead : INT64_MAX;
}

void StepSearch::begin(int64_t now) {
    if (on_ && !predicted_) return;  // the search for the grid ends with a step after now, too
    on_ = true;
    found_ = false;
    num_delays_ = 0;
    predict(now);
}

void StepSearch::predict(int64_t now) {
    last_.reset();
    // One that came too late comes earlier the next time: other GPUs of this poller may step at that moment.
    const int64_t lead_ns = kLead << 2 * num_delays_;
    predicted_ = grid_.next(now + lead_ns);
    if (!predicted_) return find_grid(now);
    next_ns_ = predicted_->low_ns - lead_ns;
    until_ns_ = predicted_->high_ns + kPast;
    pause_ns_ = kPause;
}

void StepSearch::find_grid(int64_t from_ns) {
    grid_.reset();
    predicted_.reset();
    next_ns_ = from_ns;
    until_ns_ = from_ns + kLongestPeriod;
    pause_ns_ = kLongPause;
}

void StepSearch::add_reading(const CounterRow& reading) {
    const std::optional<CounterRow> last = std::exchange(last_, reading);
    if (!last) in_time_ = !predicted_ || reading.after_ns <= predicted_->low_ns;
    if (last && reading.energy_mj < last->energy_mj) {
        grid_.reset();
        if (on_) find_grid(reading.after_ns);
        return;
    }
    const bool changed = last && reading.energy_mj != last->energy_mj;
    if (changed && (on_ || grid_.known())) grid_.add_step({last->before_ns, reading.after_ns});
    if (on_) changed ? stepped(reading.after_ns) : go_on(reading.after_ns);
}

void StepSearch::stepped(int64_t now) {
    if (grid_.known()) return end(true);
    next_ns_ = now + kLongPause;
    until_ns_ = now + kLongestPeriod;
    pause_ns_ = kPause;
}

void StepSearch::go_on(int64_t now) {
    if (now < until_ns_ && in_time_) {
        const bool read_through = !predicted_ || predicted_->width_ns() > kNarrow;
        next_ns_ = read_through ? now + pause_ns_ : until_ns_;
    } else if (!in_time_) {
        delayed(now);
    } else if (predicted_) {
        find_grid(now);  // what was expected did not come
    } else {
        end(false);  // the counter stands still
    }
}

void StepSearch::delayed(int64_t now) { ++num_delays_ <= kMostDelays ? predict(now) : end(false); }

void StepSearch::failed(int64_t now) {
    if (on_) delayed(now);
}

void StepSearch::end(bool found) {
    on_ = false;
    found_ = found;
}

}  // namespace pybench
