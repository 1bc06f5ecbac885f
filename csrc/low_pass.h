// Undoes a sensor's low-pass over the cells between samples; pybench/power/curve.py describes the method.
#pragma once

#include <cstddef>
#include <vector>

namespace pybench {

// Power behind a low-pass of tau_s, with the standard deviation of each sample's noise.
struct NoisySamples {
    const double *time_s, *power_w, *noise_w;
    size_t size;
    double tau_s, period_s;  // period_s: median spacing
    double gap_s;            // a longer cell is a gap
};

// The load over a part of a cell, with its standard deviation.
struct Piece {
    double end_s, energy_j, sigma_j;
    double missed_j;    // error of a counter of samples at a jump
    double counted_j2;  // variance of a counter of samples, at jumps of any phase and by the load's noise between them
    double unsteady_j;  // error of samples in step with a load that jumps
};

struct Undone {
    std::vector<Piece> pieces;
    double blind_s;  // mean time after a cell's start in which jumps are invisible
};

// Median deviation of a sample from its neighbours' mean, as a fraction of its power. Takes at least three samples.
double middle_deviation(const double* power_w, size_t size);

// Two pieces for a cell with a step, else one. Takes at least two samples.
Undone undone(const NoisySamples& samples);

}  // namespace pybench
