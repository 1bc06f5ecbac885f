#include "publication_grid.h"

#include <algorithm>
#include <cmath>

namespace pybench {

namespace {

// Publications on an H200 come 99.7 to 100.3 ms apart.
constexpr int64_t kJitter = kMillisecond / 2;
constexpr int64_t kShortestPeriod = 5 * kMillisecond;
// Uncertainty of a step's time in periods: above the first it needs another reading, above the second adjacent steps
// are confused.
constexpr double kRefineAbovePeriods = 0.65;
constexpr double kAmbiguousAbovePeriods = 0.8;

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

}  // namespace pybench
