// What an energy counter holds that adds up samples of the power.
#pragma once

#include <cstddef>

namespace pybench {

// Joules since some moment, and the power behind a low-pass of tau_s, at each time; two or more.
struct SeenCurve {
    const double *time_s, *energy_j, *seen_w;
    size_t size;
    double tau_s;
};

// Joules that a counter has added up at each time which takes the power every period_s, one of them at phase_s.
void counted_j(const SeenCurve& curve, double phase_s, double period_s, const double* at_s, size_t size,
               double* counted);

}  // namespace pybench
