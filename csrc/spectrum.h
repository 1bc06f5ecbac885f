// What waves of evenly spaced frequencies explain of samples at uneven times.
#pragma once

#include <complex>
#include <cstddef>
#include <vector>

namespace pybench {

// Deviations from the mean, added up in bins so wide, of which there are so many; and the sum of their squares.
struct Bins {
    // Throws std::invalid_argument for a time in no bin.
    Bins(const double* time_s, const double* power_w, size_t num_samples, double bin_s, size_t size);

    std::vector<double> sum_w;
    double squares_w2 = 0.0;
};

struct Peak {
    double place;      // in steps: the vertex of the parabola through the highest step and its neighbours
    double explained;  // at the highest step
};

// In even steps of frequency from 0.
struct Spectrum {
    const std::complex<double>* wave;
    size_t size;
    double most;  // that a wave can explain

    double explained(size_t step) const { return std::norm(wave[step]) / most; }
    // The most highest peaks from one step on, the highest first.
    std::vector<Peak> peaks(size_t first, size_t most_peaks) const;
};

}  // namespace pybench
