// Publication periods and phases of an energy counter that its readings allow.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace pybench {

// Earliest and latest time of an event, in seconds.
struct SpanS {
    double low_s, high_s;
};

// The counter stepped within each bracket and in no quiet span. Brackets sorted by distance from 0 are tested fastest.
struct StepSpans {
    std::vector<SpanS> brackets, quiet;
};

// Earliest and latest phase for this period, within half_s of 0; nullopt if no phase fits. slack_s: displacement of
// publications by an error of the period.
std::optional<SpanS> phases_s(const StepSpans& steps, double period_s, double half_s, double slack_s);

// Ascending readings with their spans; firsts: index of the first reading of each value.
struct ValueReadings {
    std::vector<SpanS> made;
    std::vector<size_t> firsts;
};

// Publication number of each value; nullopt if the grid can't hold the readings. All readings of a value saw one
// publication, and a later value is a later publication.
std::optional<std::vector<double>> publications(const ValueReadings& readings, double phase_s, double period_s);

}  // namespace pybench
