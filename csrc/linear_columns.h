// Linear interpolation of columns over time, and the part of a running sum within windows.
#pragma once

#include <cstddef>
#include <vector>

namespace pybench {

// Columns over the same ascending times, constant beyond the ends.
struct LinearColumns {
    const double* time_s;
    size_t size;
    std::vector<const double*> columns;

    // Writes one row for each column. Times near their predecessors are fastest.
    void at(const double* at_s, size_t num, double* values) const;
};

// The part of a running sum within windows up to each time. ends: the sum at the windows' ends; sums: at the times.
void within_windows(const std::vector<double>& ends_s, const double* ends, const double* at_s, const double* sums,
                    size_t num, double* within);

}  // namespace pybench
