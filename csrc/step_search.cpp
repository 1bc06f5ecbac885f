#include "step_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pybench {

namespace {

// Publications on an H200 come 99.7 to 100.3 ms apart.
constexpr int64_t kJitter = kMillisecond / 2;
constexpr int64_t kShortestPeriod = 5 * kMillisecond;
// Uncertainty of a step's time in periods: above the first it needs another reading, above the second adjacent steps
// are confused.
constexpr double kRefineAbovePeriods = 0.65;
constexpr double kAmbiguousAbovePeriods = 0.8;

// A reading this long before a step is over before it, in the middle case also behind another GPU's.
constexpr int64_t kLead = 6 * kMillisecond;
constexpr int64_t kPast = kMillisecond / 2;
// A span wider than this is read through, which narrows it and those of later steps.
constexpr int64_t kNarrow = 24 * kMillisecond;
constexpr int64_t kPause = 4 * kMillisecond;
constexpr int64_t kLongPause = 8 * kMillisecond;  // for what will be refined
constexpr int64_t kLongestPeriod = 150 * kMillisecond;
constexpr int kMostDelays = 3;

int64_t middle_ns(Span span) { return span.low_ns + span.width_ns() / 2; }

}  // namespace

void PublicationGrid::reset() {
    step_.reset();
    period_.reset();
}

void PublicationGrid::add_step(Span step) {
    if (!known()) {
        if (step_) {
            const int64_t longest_ns = std::max(step.high_ns - step_->low_ns, kShortestPeriod);
            period_ = {std::max(step.low_ns - step_->high_ns, kShortestPeriod), longest_ns};
        }
        if (!step_) first_ = step;
        since_first_ = known() ? 1 : 0;
        step_ = step;
        return;
    }
    if (step.width_ns() >= period_->low_ns) return;  // room for two steps
    const double periods =
        static_cast<double>(middle_ns(step) - middle_ns(*step_)) / static_cast<double>(middle_ns(*period_));
    const int64_t number = std::llround(periods);
    if (number < 1) return;
    const Span expected = predicted(number);
    const Span seen = {std::max(step.low_ns - kJitter, expected.low_ns),
                       std::min(step.high_ns + kJitter, expected.high_ns)};
    if (seen.width_ns() < 0) {
        reset();
        return;
    }
    since_first_ += number;
    period_ = {std::max(period_->low_ns, (seen.low_ns - first_.high_ns) / since_first_),
               std::min(period_->high_ns, (seen.high_ns - first_.low_ns) / since_first_ + 1)};
    step_ = seen;
    // Narrow the first step by the newest and the period.
    first_ = {std::max(first_.low_ns, seen.low_ns - since_first_ * period_->high_ns),
              std::min(first_.high_ns, seen.high_ns - since_first_ * period_->low_ns)};
}

std::optional<Span> PublicationGrid::next(int64_t after_ns) const {
    if (!known()) return std::nullopt;
    const int64_t since_ns = std::max<int64_t>(after_ns - step_->low_ns, 1);
    const Span step = predicted((since_ns + period_->low_ns - 1) / period_->low_ns);
    if (static_cast<double>(step.width_ns()) > kAmbiguousAbovePeriods * static_cast<double>(period_->low_ns)) return {};
    return step;
}

int64_t PublicationGrid::predictable_until_ns() const {
    if (!known()) return INT64_MAX;
    const double spare_ns =
        kRefineAbovePeriods * static_cast<double>(period_->low_ns) - static_cast<double>(step_->width_ns());
    const double number = spare_ns / static_cast<double>(period_->width_ns() + 1);
    return predicted(std::max<int64_t>(static_cast<int64_t>(number), 1)).low_ns;
}

Span PublicationGrid::predicted(int64_t number) const {
    return {step_->low_ns + number * period_->low_ns, step_->high_ns + number * period_->high_ns};
}

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
