#include "hidden_wave.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

namespace pybench {

namespace {

constexpr double kPi = 3.141592653589793238462643383279502884;
// A sample is compared with so many on each side that lie whole cycles away.
constexpr size_t kNeighbours = 4;
constexpr size_t kMinCompared = 50;
// The neighbours' span, where none of them is missing and the outer ones came in time.
constexpr double kSpanSlackS = 3.5e-3;
// Evidence takes what lies farther off than this many deviations as if it lay there: a load's jumps are no wave. The
// amplitude is of all as it is.
constexpr double kClipSigmas = 4.0;
constexpr double kMadSigmas = 1.4826;
constexpr double kLeastSigmaW = 0.1;  // of the steps in which power is reported
// A load nearly in step is looked for up to this far from it.
constexpr int kOffsets = 4;
constexpr double kOffsetHz = 0.1;
// A wave that hardly differs between a sample and its neighbours has no weight.
constexpr double kRidge = 1e-3;
// No wave of a power that is never below 0 is larger than twice the mean.
constexpr double kMostAmplitude = 2.0;
// A wave of two or three samples a cycle shows in samples beside each other, too: of squares in step at least 0.4 of it
// did, of what prefills and idle pipelines looked like on H100s at most 0.22.
constexpr double kShownPart = 0.25;

// Samples of a cycle, and periods of waves in it; each is a multiple of a sixth of the sampling. The first is of
// samples beside each other.
struct Cycle {
    size_t samples;
    std::array<size_t, 3> periods;  // 0 for none
};
constexpr std::array<Cycle, 3> kCycles{{{1, {1, 2, 0}}, {2, {1, 3, 0}}, {3, {1, 2, 4}}}};
constexpr size_t kSixths = 6;
constexpr size_t kMostSixths = 12;  // two periods a sample

using Column = std::vector<double>;

struct Complex {
    Column real, imaginary;
};

// Which samples can be compared with their neighbours.
std::vector<size_t> comparable(const SeenSamples& samples, size_t cycle) {
    const size_t reach = kNeighbours * cycle;
    const double span_s = 2 * static_cast<double>(reach) * samples.period_s;
    std::vector<size_t> chosen;
    for (size_t at = reach; at + reach < samples.size; ++at)
        if (std::abs(samples.time_s[at + reach] - samples.time_s[at - reach] - span_s) < kSpanSlackS)
            chosen.push_back(at);
    return chosen;
}

// How far the value at each of these samples is from the mean of its neighbours.
Column apart(const double* values, const std::vector<size_t>& chosen, size_t cycle) {
    Column found;
    found.reserve(chosen.size());
    for (const size_t at : chosen) {
        double sum = 0.0;
        for (size_t step = cycle; step <= kNeighbours * cycle; step += cycle)
            sum += values[at + step] + values[at - step];
        found.push_back(values[at] - sum / (2 * kNeighbours));
    }
    return found;
}

Column clipped(const Column& off_w) {
    Column size_w(off_w.size());
    for (size_t at = 0; at < off_w.size(); ++at) size_w[at] = std::abs(off_w[at]);
    const auto half = size_w.begin() + static_cast<std::ptrdiff_t>(size_w.size() / 2);
    std::nth_element(size_w.begin(), half, size_w.end());
    const double most_w = kClipSigmas * (kMadSigmas * *half + kLeastSigmaW);
    Column found_w = off_w;
    for (double& each_w : found_w) each_w = std::clamp(each_w, -most_w, most_w);
    return found_w;
}

// exp(i * phase) of a frequency at each time since the middle one.
Complex turning(const SeenSamples& samples, double frequency_hz) {
    Complex wave{Column(samples.size), Column(samples.size)};
    const double middle_s = samples.time_s[samples.size / 2];
    for (size_t at = 0; at < samples.size; ++at) {
        const double phase = 2 * kPi * frequency_hz * (samples.time_s[at] - middle_s);
        wave.real[at] = std::cos(phase), wave.imaginary[at] = std::sin(phase);
    }
    return wave;
}

void turn_by(Complex& wave, const Complex& by) {
    for (size_t at = 0; at < wave.real.size(); ++at) {
        const double real = wave.real[at] * by.real[at] - wave.imaginary[at] * by.imaginary[at];
        wave.imaginary[at] = wave.real[at] * by.imaginary[at] + wave.imaginary[at] * by.real[at];
        wave.real[at] = real;
    }
}

Complex chosen_of(const Complex& wave, const std::vector<size_t>& chosen) {
    Complex found{Column(chosen.size()), Column(chosen.size())};
    for (size_t at = 0; at < chosen.size(); ++at) {
        found.real[at] = wave.real[chosen[at]];
        found.imaginary[at] = wave.imaginary[chosen[at]];
    }
    return found;
}

// Samples less the mean of their neighbours in a cycle.
struct Compared {
    std::vector<size_t> chosen;
    Column off_w, clipped_w;
    double squares_w2 = 0.0;  // of the clipped ones

    Compared(const SeenSamples& samples, size_t cycle)
        : chosen(comparable(samples, cycle)), off_w(apart(samples.power_w, chosen, cycle)) {
        if (!enough()) return;
        clipped_w = clipped(off_w);
        for (const double each_w : clipped_w) squares_w2 += each_w * each_w;
    }

    bool enough() const { return chosen.size() >= kMinCompared; }
};

struct Fit {
    double evidence, amplitude_w;
};

// Least squares of both parts of a wave.
Fit fitted(const Complex& wave, const Compared& compared) {
    double real2 = 0.0, both = 0.0, imaginary2 = 0.0, real_w = 0.0, imaginary_w = 0.0, real_off_w = 0.0,
           imaginary_off_w = 0.0;
    const double *real = wave.real.data(), *imaginary = wave.imaginary.data();
    const double *off_w = compared.off_w.data(), *clipped_w = compared.clipped_w.data();
    const size_t size = compared.chosen.size();
#pragma omp simd reduction(+ : real2, both, imaginary2, real_w, imaginary_w, real_off_w, imaginary_off_w)
    for (size_t at = 0; at < size; ++at) {
        real2 += real[at] * real[at];
        both += real[at] * imaginary[at];
        imaginary2 += imaginary[at] * imaginary[at];
        real_w += real[at] * clipped_w[at];
        imaginary_w += imaginary[at] * clipped_w[at];
        real_off_w += real[at] * off_w[at];
        imaginary_off_w += imaginary[at] * off_w[at];
    }
    const double num = static_cast<double>(size), ridge = kRidge * num;
    real2 += ridge, imaginary2 += ridge;
    const double determinant = real2 * imaginary2 - both * both;
    const auto weights_w = [&](double cosine, double sine) {
        return std::array{(imaginary2 * cosine - both * sine) / determinant,
                          (real2 * sine - both * cosine) / determinant};
    };
    const auto [cosine_w, sine_w] = weights_w(real_w, imaginary_w);
    const auto [whole_cosine_w, whole_sine_w] = weights_w(real_off_w, imaginary_off_w);
    const double explained_w2 = cosine_w * real_w + sine_w * imaginary_w;
    const double left_w2 = std::max(compared.squares_w2 - explained_w2, 1e-9);
    return {explained_w2 / 2 / (left_w2 / (num - 2)), std::hypot(whole_cosine_w, whole_sine_w)};
}

Complex conjugate(Complex wave) {
    for (double& each : wave.imaginary) each = -each;
    return wave;
}

// exp(i * phase) of one sixth of the sampling, of two, and so on.
std::vector<Complex> multiples(const Complex& sixth) {
    std::vector<Complex> found{sixth};
    while (found.size() < kMostSixths) {
        found.push_back(found.back());
        turn_by(found.back(), sixth);
    }
    return found;
}

// The samples that waves of one cycle are compared with, and one offset on and back at them.
struct Looked {
    size_t cycle;
    Compared compared;
    Complex step, back;

    Looked(const SeenSamples& samples, size_t cycle, const Complex& offset)
        : cycle(cycle), compared(samples, cycle), step(chosen_of(offset, compared.chosen)), back(conjugate(step)) {}
};

// What is left of a wave at samples that are compared, at the lowest of its offsets.
Complex lowest(const Complex& wave, const Looked& looked) {
    const auto& [cycle, compared, step, back] = looked;
    Complex own{apart(wave.real.data(), compared.chosen, cycle), apart(wave.imaginary.data(), compared.chosen, cycle)};
    for (int offset = 0; offset < kOffsets; ++offset) turn_by(own, back);
    return own;
}

// The wave in step, or beside it, that fits best; one that can't be a load's, or that samples beside each other do not
// show, is none. Where a cycle has one sample, those beside each other are what was fitted.
HiddenWave sought(const SeenSamples& samples, const Looked& looked, const Looked& adjacent, const Complex& wave,
                  double in_step_hz, double mean_w) {
    const bool beside = &looked == &adjacent;
    Complex own = lowest(wave, looked), shown = beside ? Complex{} : lowest(wave, adjacent);
    const double most_w = kMostAmplitude * mean_w / std::hypot(1.0, 2 * kPi * in_step_hz * samples.tau_s);
    HiddenWave best{0.0, in_step_hz, 0.0, looked.cycle};
    for (int offset = -kOffsets; offset <= kOffsets; ++offset) {
        const Fit fit = fitted(own, looked.compared);
        if (fit.evidence > best.evidence && fit.amplitude_w <= most_w &&
            (beside || fitted(shown, adjacent.compared).amplitude_w >= kShownPart * fit.amplitude_w))
            best = {fit.evidence, in_step_hz + offset * kOffsetHz, fit.amplitude_w, looked.cycle};
        turn_by(own, looked.step), turn_by(shown, adjacent.step);
    }
    return best;
}

}  // namespace

HiddenWave hidden_wave(const SeenSamples& samples) {
    HiddenWave best{0.0, 0.0, 0.0, 1};
    if (samples.size < kMinCompared) return best;
    const std::vector<Complex> sixths = multiples(turning(samples, 1 / (kSixths * samples.period_s)));
    const Complex offset = turning(samples, kOffsetHz);
    const double mean_w =
        std::accumulate(samples.power_w, samples.power_w + samples.size, 0.0) / static_cast<double>(samples.size);
    std::vector<Looked> each;
    for (const Cycle& cycle : kCycles) each.emplace_back(samples, cycle.samples, offset);
    const Looked& adjacent = each.front();
    if (!adjacent.compared.enough()) return best;
    for (size_t number = 0; number < each.size(); ++number) {
        const Looked& looked = each[number];
        if (!looked.compared.enough()) continue;
        for (const size_t periods : kCycles[number].periods) {
            if (periods == 0) continue;
            const double in_step_hz =
                static_cast<double>(periods) / (static_cast<double>(looked.cycle) * samples.period_s);
            const Complex& wave = sixths[kSixths / looked.cycle * periods - 1];
            const HiddenWave found = sought(samples, looked, adjacent, wave, in_step_hz, mean_w);
            if (found.evidence > best.evidence) best = found;
        }
    }
    return best;
}

}  // namespace pybench
