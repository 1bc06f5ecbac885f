// Which periods of an energy counter's publications its readings allow, and with which phases.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace pybench {

// From the earliest to the latest moment at which something can have happened, in seconds.
struct SpanS {
    double low_s, high_s;
};

// A step of the counter came within each bracket, and none within a quiet span. Brackets are quickest to test where
// those farthest from 0 are last.
struct StepSpans {
    std::vector<SpanS> brackets, quiet;
};

// The earliest and latest phase of publications so far apart, within half_s of 0; none where no phase fits. The
// period may be off by so much that publications stray by slack_s.
std::optional<SpanS> phases_s(const StepSpans& steps, double period_s, double half_s, double slack_s);

// Readings in order: each was made within a span, and the first to see a new value has its number in firsts.
struct ValueReadings {
    std::vector<SpanS> made;
    std::vector<size_t> firsts;
};

// The number of the publication that each value was seen of; none where such a grid can't hold them. A value's readings
// all saw one publication, and a later value is a later publication.
std::optional<std::vector<double>> publications(const ValueReadings& readings, double phase_s, double period_s);

}  // namespace pybench
