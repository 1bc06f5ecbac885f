#include "grid_phases.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pybench {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// A bracket in which only one publication can lie limits the phase.
std::optional<SpanS> within_bracket(SpanS bracket, double period_s, double half_s, double slack_s) {
    const double first = std::ceil((bracket.low_s - half_s - slack_s) / period_s);
    const double last = std::floor((bracket.high_s + half_s + slack_s) / period_s);
    if (first > last) return std::nullopt;
    if (first < last) return SpanS{-half_s, half_s};
    return SpanS{bracket.low_s - first * period_s, bracket.high_s - first * period_s};
}

// The first publication that may fall into a quiet span must come before it or after it.
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
    // What is far from 0 rules out most.
    for (auto bracket = steps.brackets.rbegin(); bracket != steps.brackets.rend(); ++bracket)
        if (!narrow(within_bracket(*bracket, period_s, half_s, slack_s))) return std::nullopt;
    narrow(SpanS{-half_s, half_s});
    for (const SpanS quiet : steps.quiet)
        if (!narrow(beside_quiet(quiet, period_s, half_s, slack_s))) return std::nullopt;
    if (phases.low_s > phases.high_s + slack_s) return std::nullopt;
    return phases;
}

}  // namespace pybench
