// Columns of numbers over time, linear between times, and what of them lies within windows.
#pragma once

#include <cstddef>
#include <vector>

namespace pybench {

// Several columns over the same times, which never fall. Before the first time and after the last each stays as it is.
struct LinearColumns {
    const double* time_s;
    size_t size;
    std::vector<const double*> columns;

    // Every column at each of so many times: one row a column. Times near their predecessors are found soonest.
    void at(const double* at_s, size_t num, double* values) const;
};

// What of a sum over time lies within windows up to each time, by the sum there and at the windows' ends, which are in
// order.
void within_windows(const std::vector<double>& ends_s, const double* ends, const double* at_s, const double* sums,
                    size_t num, double* within);

}  // namespace pybench
