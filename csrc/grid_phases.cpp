#include "grid_phases.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pybench {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// A bracket with room for one publication limits the phase.
std::optional<SpanS> within_bracket(SpanS bracket, double period_s, double half_s, double slack_s) {
    const double first = std::ceil((bracket.low_s - half_s - slack_s) / period_s);
    const double last = std::floor((bracket.high_s + half_s + slack_s) / period_s);
    if (first > last) return std::nullopt;
    if (first < last) return SpanS{-half_s, half_s};
    return SpanS{bracket.low_s - first * period_s, bracket.high_s - first * period_s};
}

// The publication nearest to a quiet span is before or after it.
std::optional<SpanS> beside_quiet(SpanS quiet, double period_s, double half_s, double slack_s) {
    const double next_s = std::ceil((quiet.low_s - half_s) / period_s) * period_s;
    const bool before = next_s - half_s <= quiet.low_s + slack_s, after = next_s + half_s >= quiet.high_s - slack_s;
    if (!before && !after) return std::nullopt;
    return SpanS{before ? -half_s : quiet.high_s - next_s, after ? half_s : quiet.low_s - next_s};
}

}  // namespace

std::optional<SpanS> phases_s(const StepSpans& steps, double period_s, double half_s, double slack_s) {
    SpanS phases{-kNever, kNever};
    const auto narrow = [&](const std::optional<SpanS>& allowed) {
        if (!allowed) return false;
        phases = {std::max(phases.low_s, allowed->low_s), std::min(phases.high_s, allowed->high_s)};
        return true;
    };
    // Brackets far from 0 exclude most periods.
    for (auto bracket = steps.brackets.rbegin(); bracket != steps.brackets.rend(); ++bracket)
        if (!narrow(within_bracket(*bracket, period_s, half_s, slack_s))) return std::nullopt;
    narrow(SpanS{-half_s, half_s});
    for (const SpanS quiet : steps.quiet)
        if (!narrow(beside_quiet(quiet, period_s, half_s, slack_s))) return std::nullopt;
    if (phases.low_s > phases.high_s + slack_s) return std::nullopt;
    return phases;
}

std::optional<std::vector<double>> publications(const ValueReadings& readings, double phase_s, double period_s) {
    const size_t num = readings.firsts.size();
    std::vector<double> lowest(num), highest(num), numbers(num);
    for (size_t value = 0; value < num; ++value) {
        const size_t end = value + 1 < num ? readings.firsts[value + 1] : readings.made.size();
        SpanS seen{-kNever, kNever};
        for (size_t at = readings.firsts[value]; at < end; ++at)
            seen = {std::max(seen.low_s, readings.made[at].low_s), std::min(seen.high_s, readings.made[at].high_s)};
        lowest[value] = std::floor((seen.low_s - phase_s) / period_s);
        highest[value] = std::floor((seen.high_s - phase_s) / period_s);
        if (lowest[value] != highest[value] + 1) continue;
        // The value came early or late, off its grid: the nearer publication is its own.
        const double grid_s = phase_s + lowest[value] * period_s;
        if (grid_s - seen.high_s < seen.low_s - grid_s)
            highest[value] = lowest[value];
        else
            lowest[value] = highest[value];
    }
    for (size_t value = 1; value < num; ++value) lowest[value] = std::max(lowest[value], lowest[value - 1] + 1);
    for (size_t value = num; value-- > 1;) highest[value - 1] = std::min(highest[value - 1], highest[value] - 1);
    for (size_t value = 0; value < num; ++value) {
        if (lowest[value] > highest[value] + 1) return std::nullopt;
        numbers[value] = std::floor((lowest[value] + highest[value]) / 2);
        if (value > 0 && numbers[value] <= numbers[value - 1]) return std::nullopt;
    }
    return numbers;
}

}  // namespace pybench
