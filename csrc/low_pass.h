// A low-pass undone over the cells between samples; pybench/power/energy/low_pass.py has the method.
#pragma once

#include <cstddef>
#include <vector>

namespace pybench {

// Power behind a low-pass of tau_s, with the standard deviation of each sample's own noise.
struct NoisySamples {
    const double *time_s, *power_w, *noise_w;
    size_t size;
    double tau_s, period_s;  // of the samples, in the middle
    double gap_s;            // a longer cell shows only its ends
};

// The load over a part of a cell, and how far it is open.
struct Piece {
    double end_s, energy_j, sigma_j;
    double seen_w;  // behind the low-pass at the end
    // What a counter of samples misses at a jump, and of the load's own noise as a variance; what peaks shorter than
    // the samples' spacing leave open where all are alike, and what such loads do in step with the samples.
    double missed_j, sampled_j2, counted_j2, unresolved_j, unsteady_j;
};

struct Undone {
    std::vector<Piece> pieces;
    double blind_s;  // mean time after a cell's start in which jumps leave no trace
};

// The middle deviation of a sample from the mean of its neighbours, as a part of its power. Takes three samples or
// more.
double middle_deviation(const double* power_w, size_t size);

// Two pieces a cell where a step lies in it, before and after; else one. Takes two samples or more.
Undone undone(const NoisySamples& samples);

}  // namespace pybench
