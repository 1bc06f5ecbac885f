#include "linear_columns.h"

#include <algorithm>

namespace pybench {

namespace {

// Index of the piece at a time within the columns. Pieces next to the last result are tried first.
size_t piece_of(const double* time_s, size_t size, double at_s, size_t last) {
    if (at_s >= time_s[last] && at_s < time_s[last + 1]) return last;
    if (last > 0 && at_s >= time_s[last - 1] && at_s < time_s[last]) return last - 1;
    const double* const after = std::upper_bound(time_s, time_s + size, at_s);
    return static_cast<size_t>(after - time_s) - 1;
}

}  // namespace

void LinearColumns::at(const double* at_s, size_t num, double* values) const {
    size_t piece = 0;
    for (size_t at = 0; at < num; ++at) {
        const double now_s = at_s[at];
        double* value = values + at;
        if (now_s < time_s[0] || now_s >= time_s[size - 1]) {
            const size_t end = now_s < time_s[0] ? 0 : size - 1;
            for (const double* const column : columns) *value = column[end], value += num;
            continue;
        }
        piece = piece_of(time_s, size, now_s, piece);
        const double since_s = now_s - time_s[piece], length_s = time_s[piece + 1] - time_s[piece];
        for (const double* const column : columns) {
            *value = (column[piece + 1] - column[piece]) / length_s * since_s + column[piece];
            value += num;
        }
    }
}

void within_windows(const std::vector<double>& ends_s, const double* ends, const double* at_s, const double* sums,
                    size_t num, double* within) {
    // The part within windows up to each end.
    std::vector<double> whole(ends_s.size(), 0.0);
    for (size_t end = 1; end < whole.size(); ++end)
        whole[end] = end % 2 == 1 ? whole[end - 1] + (ends[end] - ends[end - 1]) : whole[end - 1];
    for (size_t at = 0; at < num; ++at) {
        const auto passed = std::upper_bound(ends_s.begin(), ends_s.end(), at_s[at]) - ends_s.begin();
        if (passed == 0) {
            within[at] = 0.0;
            continue;
        }
        const size_t last = static_cast<size_t>(passed) - 1;
        within[at] = last % 2 == 0 ? whole[last] + (sums[at] - ends[last]) : whole[last];
    }
}

}  // namespace pybench
