// A load in step with the samples of its power; pybench/power/energy/hidden.py has the method.
#pragma once

#include <cstddef>

namespace pybench {

// Samples of the power behind a low-pass of tau_s, so far apart in the middle.
struct SeenSamples {
    const double *time_s, *power_w;
    size_t size;
    double tau_s, period_s;
};

// The wave whose evidence is the highest: the ratio of variances that it explains and leaves (Fisher's F). A cycle of
// so many samples holds a whole number of its periods, or nearly; amplitude_w is as the samples see it.
struct HiddenWave {
    double evidence, frequency_hz, amplitude_w;
    size_t cycle;
};

// Without evidence where there are too few samples.
HiddenWave hidden_wave(const SeenSamples& samples);

}  // namespace pybench
