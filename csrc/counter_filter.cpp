#include "counter_filter.h"

#include <algorithm>
#include <cmath>

namespace pybench {

namespace {

// Counter and series agreed to 0.15 % over 3 s, to 0.11 % over 20 s.
constexpr double kGainSpread = 1e-3;
// Prior: logarithm of the weight lost by a hypothesis whose series is off as a whole.
constexpr double kMostGainCost = 12.0;
// Weight of the prior scale, as a number of values.
constexpr double kScaleFreedom = 3.0;
// A value this many standard deviations off is misplaced.
constexpr double kOutlierSigmas2 = 3.0 * 3.0;

constexpr double kLeastProduct = 1e-150;

double squared(double value) { return value * value; }

}  // namespace

double Table::at(size_t value, size_t hypothesis) const {
    const ptrdiff_t away = static_cast<ptrdiff_t>(value) * stride[0] + static_cast<ptrdiff_t>(hypothesis) * stride[1];
    return *reinterpret_cast<const double*>(reinterpret_cast<const char*>(data) + away);
}

CounterFilter::CounterFilter(double belief, double further_spread, double step_spread)
    : step_spread_(step_spread), log_weight_(std::log(belief)), misfit_(kScaleFreedom) {
    covariance_[kGain][kGain] = squared(kGainSpread) + squared(further_spread);
    covariance_[kInStep][kInStep] = squared(step_spread);
}

void CounterFilter::follow(const CounterPart& part, size_t hypothesis) {
    const auto of = [&](const Table& table, size_t value) { return table.at(value, hypothesis); };
    const size_t last = part.num_values - 1;
    Along along;
    for (size_t step = 0; step < last; ++step) {
        along.spent_j += of(part.spent_j, step);
        along.taken_j += of(part.taken_j, step);
        along.spent_j2 += of(part.spent_j2, step);
        along.in_step_j += of(part.in_step_j, step);
    }
    const double first_j = of(part.value_j, 0), first_j2 = of(part.value_j2, 0);
    if (!followed_) begin_gain(of(part.value_j, last) - first_j, first_j2 + of(part.value_j2, last), along);
    begin(first_j, first_j2);
    Expected expected{0.0, 0.0};
    for (size_t step = 0; step < last; ++step) {
        doubt(of(part.spent_j2, step), of(part.spent_j2, step) - of(part.taken_j2, step));
        expected.spent_j += of(part.spent_j, step);
        expected.in_step_j += of(part.in_step_j, step);
        correct(of(part.value_j, step + 1), of(part.value_j2, step + 1), expected);
    }
    num_values_ += part.num_values;
    followed_ = true;
    last_ = along;
}

FilterOutcome CounterFilter::outcome(double beyond_j, double beyond_j2) const {
    const double within_j = last_.taken_j + beyond_j;
    const double energy_j = mean_[kCounted] - mean_[kOutside] + within_j * (1 + mean_[kGain]);
    const double apart_j2 =
        covariance_[kCounted][kCounted] + covariance_[kOutside][kOutside] - 2 * covariance_[kCounted][kOutside];
    const double with_gain_j = covariance_[kCounted][kGain] - covariance_[kOutside][kGain];
    const double variance_j2 =
        apart_j2 + within_j * (2 * with_gain_j + within_j * covariance_[kGain][kGain]) + beyond_j2;
    const double freedom = kScaleFreedom + static_cast<double>(num_values_) - 1;
    const double log_weight = log_weight_ - std::log(expected_j2_) / 2 - freedom / 2 * std::log(misfit_);
    return {log_weight, energy_j, variance_j2, misfit_ / freedom};
}

// A difference of the sums beyond the gain's spread and their variance is an error of the series.
void CounterFilter::begin_gain(double counted_j, double values_j2, const Along& along) {
    const double doubt_j2 = along.spent_j2 + values_j2 + squared(step_spread_ * along.in_step_j);
    const double spent_j = std::max(along.spent_j, 1e-9);
    const double off = counted_j / spent_j - 1;
    const double doubt2 = covariance_[kGain][kGain] + doubt_j2 / squared(spent_j);
    if (!(squared(off) > kOutlierSigmas2 * doubt2)) return;
    log_weight_ -= std::min(squared(off) / doubt2 / 2, kMostGainCost);
    mean_[kGain] = off;
    covariance_[kGain][kGain] = doubt2;
}

void CounterFilter::begin(double value_j, double value_j2) {
    if (followed_) {
        leave();
        for (size_t other = 0; other < kNum; ++other) covariance_[kCounted][other] = covariance_[other][kCounted] = 0.0;
    } else {
        mean_[kOutside] = value_j;
        covariance_[kCounted][kOutside] = covariance_[kOutside][kCounted] = covariance_[kOutside][kOutside] = value_j2;
    }
    mean_[kCounted] = value_j;
    covariance_[kCounted][kCounted] = value_j2;
}

// After a curve the series' energy outside the windows becomes part of the second quantity.
void CounterFilter::leave() {
    add(kOutside, kGain, last_.spent_j - last_.taken_j);
    mean_[kOutside] += last_.spent_j - last_.taken_j;
    add(kOutside, kInStep, last_.in_step_j);
}

// Adds a multiple of one quantity to another.
void CounterFilter::add(size_t quantity, size_t other, double times) {
    mean_[quantity] += times * mean_[other];
    for (size_t each = 0; each < kNum; ++each) covariance_[quantity][each] += times * covariance_[other][each];
    for (size_t each = 0; each < kNum; ++each) covariance_[each][quantity] += times * covariance_[each][other];
}

// From one value to the next. Variance outside the windows belongs to both quantities.
void CounterFilter::doubt(double spent_j2, double outside_j2) {
    covariance_[kCounted][kCounted] += spent_j2;
    covariance_[kOutside][kOutside] += outside_j2;
    covariance_[kCounted][kOutside] += outside_j2;
    covariance_[kOutside][kCounted] += outside_j2;
}

// Updates with one value.
void CounterFilter::correct(double value_j, double value_j2, Expected expected) {
    const double off_j = value_j - expected.spent_j - of_value(mean_, expected);
    std::array<double, kNum> with_value_j2;
    // The covariance is symmetric.
    for (size_t each = 0; each < kNum; ++each) with_value_j2[each] = of_value(covariance_[each], expected);
    const double expected_j2 = of_value(with_value_j2, expected) + value_j2, off_j2 = squared(off_j);
    weigh(expected_j2);
    misfit_ += std::min(off_j2 / expected_j2, kOutlierSigmas2);
    const double trusted_j2 = off_j2 > kOutlierSigmas2 * expected_j2 ? expected_j2 + off_j2 : expected_j2;
    const double trust = 1 / trusted_j2;
    for (size_t each = 0; each < kNum; ++each) {
        const double pull = with_value_j2[each] * trust;
        mean_[each] += pull * off_j;
        for (size_t other = 0; other < kNum; ++other) covariance_[each][other] -= pull * with_value_j2[other];
    }
}

// One logarithm of a product is faster than many; it is taken before the product overflows.
void CounterFilter::weigh(double expected_j2) {
    expected_j2_ *= expected_j2;
    if (expected_j2_ > kLeastProduct && expected_j2_ < 1 / kLeastProduct) return;
    log_weight_ -= std::log(expected_j2_) / 2;
    expected_j2_ = 1.0;
}

double CounterFilter::of_value(const std::array<double, kNum>& quantities, Expected expected) const {
    return quantities[kCounted] + expected.spent_j * quantities[kGain] + expected.in_step_j * quantities[kInStep];
}

}  // namespace pybench
