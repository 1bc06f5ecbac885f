// A Kalman filter over the values of an energy counter, for one hypothesis of its lag and grid.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace pybench {

// View of numbers by value and hypothesis; stride 0 for an axis with one number.
struct Table {
    const double* data;
    std::array<ptrdiff_t, 2> stride;  // in bytes

    double at(size_t value, size_t hypothesis) const;
};

// The counter's values along one curve, and the steps between them.
struct CounterPart {
    size_t num_values;
    Table value_j, value_j2;
    Table spent_j, taken_j, spent_j2, taken_j2, in_step_j;
};

struct FilterOutcome {
    double log_weight, energy_j, variance_j2, misfit;
};

class CounterFilter {
  public:
    // gain_spread: additional standard deviation of the series' gain. step_spread: that of a load in step.
    CounterFilter(double belief, double further_spread, double step_spread);

    // Follows the values along one curve. The energy before its first value is unknown and within the windows.
    void follow(const CounterPart& part, size_t hypothesis);
    // Joules within the windows; beyond_j is the part before the first value and after the last.
    FilterOutcome outcome(double beyond_j, double beyond_j2) const;

  private:
    // The counter's sum, the sum outside the windows, the series' gain, and the sampling error of a load in step.
    enum { kCounted, kOutside, kGain, kInStep, kNum };
    // Expected value less the series' joules: factors of the quantities. The first's is 1, the second's 0.
    struct Expected {
        double spent_j, in_step_j;
    };
    // Sums along the curve that was followed last.
    struct Along {
        double spent_j = 0.0, taken_j = 0.0, spent_j2 = 0.0, in_step_j = 0.0;
    };

    void begin_gain(double counted_j, double doubt_j2, const Along& along);
    void begin(double value_j, double value_j2);
    void leave();
    void add(size_t quantity, size_t other, double times);
    void doubt(double spent_j2, double outside_j2);
    void correct(double value_j, double value_j2, Expected expected);
    void weigh(double expected_j2);
    double of_value(const std::array<double, kNum>& quantities, Expected expected) const;

    double step_spread_, log_weight_, misfit_;
    double expected_j2_ = 1.0;  // product over the values not yet in log_weight_
    std::array<double, kNum> mean_{};
    std::array<std::array<double, kNum>, kNum> covariance_{};
    size_t num_values_ = 0;
    bool followed_ = false;
    Along last_;
};

}  // namespace pybench
