// The sum of an energy counter that samples the power.
#pragma once

#include <cstddef>

namespace pybench {

// Running energy, and power behind a low-pass of tau_s, at two or more times.
struct SeenCurve {
    const double *time_s, *energy_j, *seen_w;
    size_t size;
    double tau_s;
};

// Sum at each time of a counter that samples the power at phase_s + k * period_s.
void counted_j(const SeenCurve& curve, double phase_s, double period_s, const double* at_s, size_t size,
               double* counted);

}  // namespace pybench
