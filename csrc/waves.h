// A wave and its harmonics fitted to samples at uneven times.
#pragma once

#include <complex>
#include <cstddef>
#include <vector>

namespace pybench {

// Seconds and watts, every other two samples first: the first half is fitted without the second, and the other way
// round.
struct HalvedSamples {
    HalvedSamples(const double* times_s, const double* powers_w, size_t size);

    std::vector<double> time_s, power_w;
    size_t half = 0;
};

// Of angles in turns.
struct CosinesAndSines {
    CosinesAndSines(const double* times_s, size_t size, double frequency_hz);

    std::vector<double> cosine, sine;
};

// The sum of all harmonics of a wave at each time, each the real part of amplitude * exp(i * phase).
void sum_waves(const double* times_s, size_t size, double frequency_hz,
               const std::vector<std::complex<double>>& amplitude, double* sums);

// Weights of each harmonic's cosine and sine, a constant and a drift, by least squares (Lomb, Astrophys. Space Sci. 39,
// 1976).
class Waves {
  public:
    Waves(const HalvedSamples& samples, double frequency_hz, size_t num_harmonics);

    double frequency_hz() const { return frequency_hz_; }
    size_t num_harmonics() const { return num_harmonics_; }
    double cosine_w(size_t harmonic) const { return weight_[2 * harmonic]; }
    double sine_w(size_t harmonic) const { return weight_[2 * harmonic + 1]; }
    // The deviation of the samples from the fit.
    double left_w() const;
    // The deviation of each half of the samples from a fit to the other.
    double left_of_others_w() const;
    // Where all harmonics together fit best, by so many of Gauss and Newton's steps.
    Waves tuned(int num_steps, double farthest_hz) const;

  private:
    double step_hz() const;
    const double* row(size_t number) const { return rows_.data() + number * size_; }
    double* mutable_row(size_t number) { return rows_.data() + number * size_; }
    std::vector<double> explained(const std::vector<double>& column, size_t begin, size_t end) const;
    std::vector<double> sum(const std::vector<double>& weight, size_t begin, size_t end) const;
    std::vector<double> solved(std::vector<double> products, std::vector<double> explained, size_t size) const;

    const HalvedSamples* samples_;  // which live longer
    double frequency_hz_;
    size_t num_harmonics_, num_rows_, size_;
    std::vector<double> rows_;
    std::vector<double> first_products_, second_products_;  // of each two rows, over each half of the samples
    std::vector<double> products_;
    std::vector<double> weight_;
};

}  // namespace pybench
