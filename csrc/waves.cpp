#include "waves.h"

#include <algorithm>
#include <cmath>

namespace pybench {

namespace {

constexpr double kPi = 3.141592653589793238462643383279502884;
// Rows that the samples can't separate share what they explain.
constexpr double kRidgeFraction = 1e-6;

// Eight sums side by side: each addition waits for the last one of its own sum alone.
double dot(const double* one, const double* other, size_t size) {
    constexpr size_t kSums = 8;
    double sums[kSums] = {};
    size_t at = 0;
    for (; at + kSums <= size; at += kSums)
        for (size_t sum = 0; sum < kSums; ++sum) sums[sum] += one[at + sum] * other[at + sum];
    for (; at < size; ++at) sums[0] += one[at] * other[at];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// Adding it leaves no digit after the point.
constexpr double kWhole = 6755399441055744.0;

double nearest(double value) { return (value + kWhole) - kWhole; }

// Taylor's series, whose next terms are below the last digit within an eighth of a turn.
double small_sine(double angle) {
    const double x2 = angle * angle;
    double sum = -1.0 / 1307674368000;
    sum = sum * x2 + 1.0 / 6227020800;
    sum = sum * x2 - 1.0 / 39916800;
    sum = sum * x2 + 1.0 / 362880;
    sum = sum * x2 - 1.0 / 5040;
    sum = sum * x2 + 1.0 / 120;
    sum = sum * x2 - 1.0 / 6;
    return angle + angle * x2 * sum;
}

double small_cosine(double angle) {
    const double x2 = angle * angle;
    double sum = 1.0 / 20922789888000;
    sum = sum * x2 - 1.0 / 87178291200;
    sum = sum * x2 + 1.0 / 479001600;
    sum = sum * x2 - 1.0 / 3628800;
    sum = sum * x2 + 1.0 / 40320;
    sum = sum * x2 - 1.0 / 720;
    sum = sum * x2 + 1.0 / 24;
    sum = sum * x2 - 0.5;
    return 1 + x2 * sum;
}

double squares(const std::vector<double>& column) { return dot(column.data(), column.data(), column.size()); }

double ridge(size_t size) { return kRidgeFraction / static_cast<double>(size); }

// Of each two rows, between two samples; the lower triangle. Rows are even in number, and each that is loaded is used
// twice.
std::vector<double> products_of(const std::vector<double>& rows, size_t num_rows, size_t begin, size_t end) {
    const size_t size = rows.size() / num_rows;
    std::vector<double> products(num_rows * num_rows);
    for (size_t one = 0; one < num_rows; one += 2)
        for (size_t other = 0; other <= one; other += 2) {
            const double *own = &rows[one * size], *own_next = own + size;
            const double *its = &rows[other * size], *its_next = its + size;
            double product = 0.0, right = 0.0, below = 0.0, both = 0.0;
#pragma omp simd reduction(+ : product, right, below, both)
            for (size_t at = begin; at < end; ++at) {
                product += own[at] * its[at];
                right += own[at] * its_next[at];
                below += own_next[at] * its[at];
                both += own_next[at] * its_next[at];
            }
            double* const corner = &products[one * num_rows + other];
            corner[0] = product, corner[1] = right, corner[num_rows] = below, corner[num_rows + 1] = both;
        }
    return products;
}

}  // namespace

// In vectors, which the standard library's functions are not: a third of their time.
CosinesAndSines::CosinesAndSines(const double* times_s, size_t size, double frequency_hz) : cosine(size), sine(size) {
    for (size_t at = 0; at < size; ++at) {
        const double turns = frequency_hz * times_s[at], part = turns - nearest(turns), quarter = nearest(4 * part);
        const double angle = 2 * kPi * (part - quarter / 4);
        const double own_cosine = small_cosine(angle), own_sine = small_sine(angle);
        const bool odd = std::abs(quarter) == 1.0;
        const double cosine_sign = quarter == 0.0 || quarter == -1.0 ? 1.0 : -1.0;
        const double sine_sign = quarter == 0.0 || quarter == 1.0 ? 1.0 : -1.0;
        cosine[at] = cosine_sign * (odd ? own_sine : own_cosine);
        sine[at] = sine_sign * (odd ? own_cosine : own_sine);
    }
}

void sum_waves(const double* times_s, size_t size, double frequency_hz,
               const std::vector<std::complex<double>>& amplitude, double* sums) {
    const CosinesAndSines turn(times_s, size, frequency_hz);
    for (size_t at = 0; at < size; ++at) {
        double real = 0.0, imaginary = 0.0;
        // Horner's rule.
        for (size_t harmonic = amplitude.size(); harmonic-- > 0;) {
            const double own = real + amplitude[harmonic].real(), other = imaginary + amplitude[harmonic].imag();
            real = own * turn.cosine[at] - other * turn.sine[at];
            imaginary = own * turn.sine[at] + other * turn.cosine[at];
        }
        sums[at] = real;
    }
}

HalvedSamples::HalvedSamples(const double* times_s, const double* powers_w, size_t size) {
    time_s.reserve(size);
    power_w.reserve(size);
    for (const size_t which : {0, 1}) {
        for (size_t at = 0; at < size; ++at) {
            if (at / 2 % 2 != which) continue;
            time_s.push_back(times_s[at]);
            power_w.push_back(powers_w[at]);
        }
        if (which == 0) half = time_s.size();
    }
}

Waves::Waves(const HalvedSamples& samples, double frequency_hz, size_t num_harmonics)
    : samples_(&samples),
      frequency_hz_(frequency_hz),
      num_harmonics_(num_harmonics),
      num_rows_(2 * num_harmonics + 2),
      size_(samples.time_s.size()),
      rows_(num_rows_ * size_) {
    double farthest_s = 1e-9;
    for (const double at_s : samples.time_s) farthest_s = std::max(farthest_s, std::abs(at_s));
    const CosinesAndSines turn(samples.time_s.data(), size_, frequency_hz);
    const std::vector<double>& cosine = turn.cosine;
    std::copy(cosine.begin(), cosine.end(), mutable_row(0));
    std::copy(turn.sine.begin(), turn.sine.end(), mutable_row(1));
    // Chebyshev's recurrence, from 1 and 0 before the first harmonic.
    for (size_t number = 2; number < 2 * num_harmonics; ++number) {
        const double* const last = row(number - 2);
        const double* const before = number < 4 ? nullptr : row(number - 4);
        const double zeroth = number == 2 ? 1.0 : 0.0;
        double* const own = mutable_row(number);
        for (size_t at = 0; at < size_; ++at) own[at] = 2 * cosine[at] * last[at] - (before ? before[at] : zeroth);
    }
    std::fill_n(mutable_row(num_rows_ - 2), size_, 1.0);
    for (size_t at = 0; at < size_; ++at) mutable_row(num_rows_ - 1)[at] = samples.time_s[at] / farthest_s;
    first_products_ = products_of(rows_, num_rows_, 0, samples.half);
    second_products_ = products_of(rows_, num_rows_, samples.half, size_);
    products_ = first_products_;
    for (size_t at = 0; at < products_.size(); ++at) products_[at] += second_products_[at];
    weight_ = solved(products_, explained(samples.power_w, 0, size_), size_);
}

double Waves::left_w() const {
    const std::vector<double> fitted_w = sum(weight_, 0, size_);
    double mean_w = 0.0, squares_w2 = 0.0;
    for (size_t at = 0; at < size_; ++at) mean_w += samples_->power_w[at] - fitted_w[at];
    mean_w /= static_cast<double>(size_);
    for (size_t at = 0; at < size_; ++at) {
        const double off_w = samples_->power_w[at] - fitted_w[at] - mean_w;
        squares_w2 += off_w * off_w;
    }
    return std::sqrt(squares_w2 / static_cast<double>(size_));
}

double Waves::left_of_others_w() const {
    const size_t half = samples_->half;
    const std::vector<double> first = solved(first_products_, explained(samples_->power_w, 0, half), half);
    const std::vector<double> second =
        solved(second_products_, explained(samples_->power_w, half, size_), size_ - half);
    std::vector<double> off_w = sum(second, 0, half);
    const std::vector<double> of_second_w = sum(first, half, size_);
    off_w.insert(off_w.end(), of_second_w.begin(), of_second_w.end());
    for (size_t at = 0; at < size_; ++at) off_w[at] -= samples_->power_w[at];
    return std::sqrt(squares(off_w) / static_cast<double>(size_));
}

Waves Waves::tuned(int num_steps, double farthest_hz) const {
    Waves waves = *this;
    for (int step = 0; step < num_steps; ++step) {
        const double step_hz = std::clamp(waves.step_hz(), -farthest_hz, farthest_hz);
        waves = Waves(*samples_, waves.frequency_hz_ + step_hz, num_harmonics_);
    }
    return waves;
}

double Waves::step_hz() const {
    std::vector<double> turned(num_rows_, 0.0);
    for (size_t harmonic = 0; harmonic < num_harmonics_; ++harmonic) {
        const double order = 2 * kPi * static_cast<double>(harmonic + 1);
        turned[2 * harmonic] = order * sine_w(harmonic);
        turned[2 * harmonic + 1] = -order * cosine_w(harmonic);
    }
    std::vector<double> slope = sum(turned, 0, size_);
    for (size_t at = 0; at < size_; ++at) slope[at] *= samples_->time_s[at];
    // By how much of its slope, beside all rows, the samples are explained best: of the normal equations' last row.
    const std::vector<double> with_rows = explained(slope, 0, size_), own = solved(products_, with_rows, size_);
    const double alone = squares(slope);
    const double beside = alone * (1 + ridge(size_)) - dot(with_rows.data(), own.data(), num_rows_);
    const double left =
        dot(slope.data(), samples_->power_w.data(), size_) - dot(with_rows.data(), weight_.data(), num_rows_);
    return left / std::max({beside, alone * ridge(size_), 1e-12});
}

std::vector<double> Waves::explained(const std::vector<double>& column, size_t begin, size_t end) const {
    std::vector<double> explained(num_rows_);
    for (size_t number = 0; number < num_rows_; ++number)
        explained[number] = dot(row(number) + begin, column.data() + begin, end - begin);
    return explained;
}

std::vector<double> Waves::sum(const std::vector<double>& weight, size_t begin, size_t end) const {
    std::vector<double> sum(end - begin, 0.0);
    for (size_t number = 0; number < num_rows_; ++number)
        for (size_t at = begin; at < end; ++at) sum[at - begin] += weight[number] * row(number)[at];
    return sum;
}

// By Cholesky's decomposition without roots, of the lower triangle.
std::vector<double> Waves::solved(std::vector<double> products, std::vector<double> explained, size_t size) const {
    const size_t num = num_rows_;
    for (size_t at = 0; at < num; ++at) {
        double& own = products[at * num + at];
        own += own * ridge(size) + (own > 0 ? 0.0 : 1.0);
    }
    std::vector<double> column(num);
    for (size_t at = 0; at < num; ++at) {
        const double own = products[at * num + at];
        for (size_t below = at + 1; below < num; ++below) {
            column[below] = products[below * num + at];
            const double part = column[below] / own;
            for (size_t right = at + 1; right <= below; ++right) products[below * num + right] -= part * column[right];
            explained[below] -= part * explained[at];
            products[below * num + at] = part;
        }
    }
    for (size_t at = num; at-- > 0;) {
        explained[at] /= products[at * num + at];
        for (size_t after = at + 1; after < num; ++after)
            explained[at] -= products[after * num + at] * explained[after];
    }
    return explained;
}

}  // namespace pybench
