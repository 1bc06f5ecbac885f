// Conversion, checks of lengths and docstrings; nothing else.
#include <pybind11/complex.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <complex>
#include <optional>
#include <stdexcept>

#include "counter_filter.h"
#include "grid_phases.h"
#include "hidden_wave.h"
#include "linear_columns.h"
#include "low_pass.h"
#include "sampled_counter.h"
#include "spectrum.h"
#include "waves.h"

namespace py = pybind11;
using namespace pybench;

namespace {

using Column = py::array_t<double, py::array::c_style | py::array::forcecast>;
using Numbers = py::array_t<double>;
using Waveform = py::array_t<std::complex<double>, py::array::c_style | py::array::forcecast>;
using Part = std::array<Numbers, 9>;

size_t length(const Column& column) {
    if (column.ndim() != 1) throw std::invalid_argument("not one column");
    return static_cast<size_t>(column.size());
}

std::vector<py::ssize_t> shape_of(const Column& column) { return {column.shape(), column.shape() + column.ndim()}; }

void require_equal(size_t one, size_t other) {
    if (one != other) throw std::invalid_argument("columns differ in length");
}

// Waves at several frequencies, each with so many harmonics, fitted to the same samples.
class Fits {
  public:
    using Fit = std::tuple<double, py::array_t<std::complex<double>>, double>;

    Fits(const Column& time_s, const Column& power_w, const Column& frequency_hz,
         const std::vector<size_t>& num_harmonics)
        : samples_(time_s.data(), power_w.data(), length(time_s)) {
        require_equal(length(time_s), length(power_w));
        require_equal(length(frequency_hz), num_harmonics.size());
        for (size_t at = 0; at < num_harmonics.size(); ++at)
            waves_.emplace_back(samples_, frequency_hz.at(at), num_harmonics[at]);
    }
    Fits(const Fits&) = delete;
    Fits& operator=(const Fits&) = delete;

    Column left_w() const {
        Column left_w(waves_.size());
        for (size_t at = 0; at < waves_.size(); ++at) left_w.mutable_at(at) = waves_[at].left_w();
        return left_w;
    }

    // Of those of these numbers: frequency, amplitudes and what is left of the other samples.
    std::vector<Fit> tuned(const std::vector<size_t>& which, int num_steps, double farthest_hz) const {
        std::vector<Fit> fits;
        for (const size_t number : which) {
            const Waves waves = waves_.at(number).tuned(num_steps, farthest_hz);
            py::array_t<std::complex<double>> seen_w(waves.num_harmonics());
            for (size_t harmonic = 0; harmonic < waves.num_harmonics(); ++harmonic)
                seen_w.mutable_at(harmonic) = {waves.cosine_w(harmonic), -waves.sine_w(harmonic)};
            fits.emplace_back(waves.frequency_hz(), seen_w, waves.left_of_others_w());
        }
        return fits;
    }

  private:
    HalvedSamples samples_;
    std::vector<Waves> waves_;
};

// Of any shape, at so many times.
Column wave_sum(const Column& time_s, double frequency_hz, const std::vector<std::complex<double>>& amplitude) {
    Column sums(shape_of(time_s));
    sum_waves(time_s.data(), static_cast<size_t>(time_s.size()), frequency_hz, amplitude, sums.mutable_data());
    return sums;
}

// The highest peaks from one step on, as steps and parts of them, and what each explains of so much.
std::array<Column, 2> peaks(const Waveform& waves, double most, size_t first, size_t most_peaks) {
    if (waves.ndim() != 1) throw std::invalid_argument("not one column");
    const Spectrum spectrum{waves.data(), static_cast<size_t>(waves.size()), most};
    const std::vector<Peak> tops = spectrum.peaks(first, most_peaks);
    std::array<Column, 2> found{Column(tops.size()), Column(tops.size())};
    for (size_t at = 0; at < tops.size(); ++at) {
        found[0].mutable_at(at) = tops[at].place;
        found[1].mutable_at(at) = tops[at].explained;
    }
    return found;
}

// Deviations from the mean, added up in bins so wide, of which there are so many; and the sum of their squares.
std::pair<Column, double> binned(const Column& time_s, const Column& power_w, double bin_s, size_t size) {
    require_equal(length(time_s), length(power_w));
    const Bins bins(time_s.data(), power_w.data(), length(time_s), bin_s, size);
    return {Column(size, bins.sum_w.data()), bins.squares_w2};
}

double noise_part(const Column& power_w) {
    if (length(power_w) < 3) throw std::invalid_argument("less than three samples");
    return middle_deviation(power_w.data(), length(power_w));
}

// Of so many values or steps, and one or all of the phases and hypotheses.
Cube cube_of(const Numbers& numbers, size_t num, const std::array<size_t, 2>& shape) {
    if (numbers.ndim() != 3) throw std::invalid_argument("not by value, phase and hypothesis");
    require_equal(static_cast<size_t>(numbers.shape(0)), num);
    Cube cube{numbers.data(), {numbers.strides(0), numbers.strides(1), numbers.strides(2)}};
    for (const size_t axis : {1, 2}) {
        if (numbers.shape(axis) == 1)
            cube.stride[axis] = 0;
        else
            require_equal(static_cast<size_t>(numbers.shape(axis)), shape[axis - 1]);
    }
    return cube;
}

CounterPart part_of(const Part& part, const std::array<size_t, 2>& shape) {
    const auto& [value_j, value_j2, spent_j, taken_j, spent_j2, taken_j2, sampled_j2, counted_j2, in_step_j] = part;
    if (value_j.ndim() != 3 || value_j.shape(0) < 1) throw std::invalid_argument("no value");
    const size_t num = static_cast<size_t>(value_j.shape(0));
    const auto step = [&](const Numbers& numbers) { return cube_of(numbers, num - 1, shape); };
    return {num,
            cube_of(value_j, num, shape),
            cube_of(value_j2, num, shape),
            step(spent_j),
            step(taken_j),
            step(spent_j2),
            step(taken_j2),
            step(sampled_j2),
            step(counted_j2),
            step(in_step_j)};
}

// By phase and hypothesis: the weight's logarithm, joules, variance and misfit.
std::array<Numbers, 4> filtered(const std::vector<Part>& parts, const Numbers& belief, double further_spread,
                                double step_spread, const Numbers& beyond_j, const Numbers& beyond_j2) {
    if (belief.ndim() != 3 || belief.shape(0) != 1) throw std::invalid_argument("not by phase and hypothesis");
    const std::array<size_t, 2> shape{static_cast<size_t>(belief.shape(1)), static_cast<size_t>(belief.shape(2))};
    std::vector<CounterPart> columns;
    for (const Part& part : parts) columns.push_back(part_of(part, shape));
    const Cube believed = cube_of(belief, 1, shape), beyond = cube_of(beyond_j, 1, shape),
               beyond2 = cube_of(beyond_j2, 1, shape);
    std::array<Numbers, 4> found;
    for (Numbers& column : found) column = Numbers(shape);
    for (size_t phase = 0; phase < shape[0]; ++phase)
        for (size_t hypothesis = 0; hypothesis < shape[1]; ++hypothesis) {
            CounterFilter filter(believed.at(0, phase, hypothesis), further_spread, step_spread);
            for (const CounterPart& part : columns) filter.follow(part, phase, hypothesis);
            const FilterOutcome outcome =
                filter.outcome(beyond.at(0, phase, hypothesis), beyond2.at(0, phase, hypothesis));
            const std::array<double, 4> values{outcome.log_weight, outcome.energy_j, outcome.variance_j2,
                                               outcome.misfit};
            for (size_t at = 0; at < values.size(); ++at) found[at].mutable_at(phase, hypothesis) = values[at];
        }
    return found;
}

std::vector<SpanS> spans_of(const Column& low_s, const Column& high_s) {
    require_equal(length(low_s), length(high_s));
    std::vector<SpanS> spans;
    for (size_t at = 0; at < length(low_s); ++at) spans.push_back({low_s.at(at), high_s.at(at)});
    return spans;
}

// Periods, earliest and latest phases.
std::array<Column, 3> fitting_periods(const Column& period_s, const std::array<Column, 2>& brackets,
                                      const std::array<Column, 2>& quiet, double half_s, double slack_s) {
    const StepSpans steps{spans_of(brackets[0], brackets[1]), spans_of(quiet[0], quiet[1])};
    std::vector<std::array<double, 3>> found;
    for (size_t at = 0; at < length(period_s); ++at)
        if (const auto phases = phases_s(steps, period_s.at(at), half_s, slack_s))
            found.push_back({period_s.at(at), phases->low_s, phases->high_s});
    std::array<Column, 3> columns;
    for (size_t which = 0; which < columns.size(); ++which) {
        columns[which] = Column(found.size());
        for (size_t at = 0; at < found.size(); ++at) columns[which].mutable_at(at) = found[at][which];
    }
    return columns;
}

// None where the grid can't hold them.
std::optional<Column> published(const Column& before_s, const Column& after_s, const std::vector<size_t>& firsts,
                                double phase_s, double period_s) {
    const ValueReadings readings{spans_of(before_s, after_s), firsts};
    for (const size_t first : firsts)
        if (first >= readings.made.size()) throw std::invalid_argument("no such reading");
    const auto numbers = publications(readings, phase_s, period_s);
    if (!numbers) return std::nullopt;
    Column times_s(numbers->size());
    double* const time_s = times_s.mutable_data();
    for (size_t at = 0; at < numbers->size(); ++at) time_s[at] = phase_s + (*numbers)[at] * period_s;
    return times_s;
}

// By column, then in the shape of the times.
Numbers interpolated(const Column& time_s, const std::vector<Column>& columns, const Column& at_s) {
    if (length(time_s) < 1) throw std::invalid_argument("no time");
    LinearColumns linear{time_s.data(), length(time_s), {}};
    for (const Column& column : columns) {
        require_equal(length(column), linear.size);
        linear.columns.push_back(column.data());
    }
    std::vector<py::ssize_t> shape = shape_of(at_s);
    shape.insert(shape.begin(), static_cast<py::ssize_t>(columns.size()));
    Numbers values(shape);
    linear.at(at_s.data(), static_cast<size_t>(at_s.size()), values.mutable_data());
    return values;
}

Numbers within(const Column& ends_s, const Column& ends, const Column& at_s, const Column& sums) {
    require_equal(length(ends_s), length(ends));
    require_equal(static_cast<size_t>(at_s.size()), static_cast<size_t>(sums.size()));
    Numbers found(shape_of(at_s));
    within_windows({ends_s.data(), ends_s.data() + ends_s.size()}, ends.data(), at_s.data(), sums.data(),
                   static_cast<size_t>(at_s.size()), found.mutable_data());
    return found;
}

// By phase, at all times in their order.
Numbers counted(const Column& time_s, const Column& energy_j, const Column& seen_w, double tau_s, const Column& at_s,
                const Column& phase_s, double period_s) {
    require_equal(length(time_s), length(energy_j));
    require_equal(length(time_s), length(seen_w));
    if (length(time_s) < 2) throw std::invalid_argument("less than two times");
    const SeenCurve curve{time_s.data(), energy_j.data(), seen_w.data(), length(time_s), tau_s};
    Numbers sums_j(std::array{length(phase_s), length(at_s)});
    for (size_t phase = 0; phase < length(phase_s); ++phase)
        counted_j(curve, phase_s.at(phase), period_s, at_s.data(), length(at_s), sums_j.mutable_data(phase, 0));
    return sums_j;
}

// Nine rows, one column a piece, and the blind time.
std::pair<Numbers, double> undone_pieces(const Column& time_s, const Column& power_w, const Column& noise_w,
                                         double tau_s, double period_s, double gap_s) {
    require_equal(length(time_s), length(power_w));
    require_equal(length(time_s), length(noise_w));
    if (length(time_s) < 2) throw std::invalid_argument("less than two samples");
    const Undone found =
        undone({time_s.data(), power_w.data(), noise_w.data(), length(time_s), tau_s, period_s, gap_s});
    constexpr std::array kRows{&Piece::end_s,      &Piece::energy_j,     &Piece::sigma_j,
                               &Piece::seen_w,     &Piece::missed_j,     &Piece::sampled_j2,
                               &Piece::counted_j2, &Piece::unresolved_j, &Piece::unsteady_j};
    Numbers rows(std::array{kRows.size(), found.pieces.size()});
    auto values = rows.mutable_unchecked<2>();
    for (size_t row = 0; row < kRows.size(); ++row)
        for (size_t at = 0; at < found.pieces.size(); ++at) values(row, at) = found.pieces[at].*kRows[row];
    return {rows, found.blind_s};
}

// Evidence, frequency, amplitude and samples of a cycle.
std::tuple<double, double, double, size_t> hidden(const Column& time_s, const Column& power_w, double tau_s,
                                                  double period_s) {
    require_equal(length(time_s), length(power_w));
    const HiddenWave found = hidden_wave({time_s.data(), power_w.data(), length(time_s), tau_s, period_s});
    return {found.evidence, found.frequency_hz, found.amplitude_w, found.cycle};
}

}  // namespace

PYBIND11_MODULE(_energy, module, py::mod_gil_not_used()) {
    module.doc() = "Loops over samples, periods and hypotheses that pybench.power.energy runs for every window.";

    py::class_<Fits>(module, "Fits", "Waves with harmonics fitted to samples, at several frequencies.")
        .def(py::init<const Column&, const Column&, const Column&, const std::vector<size_t>&>(), py::arg("time_s"),
             py::arg("power_w"), py::arg("frequency_hz"), py::arg("num_harmonics"))
        .def("left_w", &Fits::left_w, "The deviation of the samples from each fit.")
        .def("tuned", &Fits::tuned, py::arg("which"), py::kw_only(), py::arg("num_steps"), py::arg("farthest_hz"),
             "Frequency, amplitudes, and deviation of samples from a fit to the others, at the best frequency near.");
    module.def("wave_sum", &wave_sum, py::arg("time_s"), py::arg("frequency_hz"), py::arg("amplitude"),
               "The sum of a wave's harmonics at each time, each the real part of amplitude * exp(i * phase).");
    module.def("binned", &binned, py::arg("time_s"), py::arg("power_w"), py::kw_only(), py::arg("bin_s"),
               py::arg("size"), "Deviations from the mean in bins of time, and the sum of their squares.");
    module.def("peaks", &peaks, py::arg("waves"), py::kw_only(), py::arg("most"), py::arg("first"),
               py::arg("most_peaks"), "Steps of a spectrum's highest peaks, and the part of most that each explains.");
    module.def("middle_deviation", &noise_part, py::arg("power_w"),
               "The middle deviation of samples from their neighbours' mean, as a part of their power.");
    module.def("counted", &counted, py::arg("time_s"), py::arg("energy_j"), py::arg("seen_w"), py::kw_only(),
               py::arg("tau_s"), py::arg("at_s"), py::arg("phase_s"), py::arg("period_s"),
               "Joules that a counter of samples has added up, by phase of the samples and time.");
    module.def(
        "undone", &undone_pieces, py::arg("time_s"), py::arg("power_w"), py::arg("noise_w"), py::kw_only(),
        py::arg("tau_s"), py::arg("period_s"), py::arg("gap_s"),
        "The load behind a low-pass in pieces: end, joules, deviation, power seen, joules missed at jumps, their "
        "variance, that of its own noise, joules unresolved where peaks are alike, and unsteady; the blind time.");
    module.def("hidden_wave", &hidden, py::arg("time_s"), py::arg("power_w"), py::kw_only(), py::arg("tau_s"),
               py::arg("period_s"),
               "Of the wave in step with samples that has the highest evidence: that, its frequency, its amplitude in "
               "samples, and how many of them a cycle has.");
    module.def("filtered", &filtered, py::arg("parts"), py::arg("belief"), py::arg("further_spread"),
               py::arg("step_spread"), py::arg("beyond_j"), py::arg("beyond_j2"),
               "Logarithm of the weight, joules, their variance and misfit, by phase and hypothesis.");
    module.def("interpolated", &interpolated, py::arg("time_s"), py::arg("columns"), py::arg("at_s"),
               "Each column at each time, linear between its own; before the first and after the last as there.");
    module.def("within", &within, py::arg("ends_s"), py::arg("ends"), py::arg("at_s"), py::arg("sums"),
               "What of a sum over time lies within windows up to each time, by the sum there and at their ends.");
    module.def("published", &published, py::arg("before_s"), py::arg("after_s"), py::arg("firsts"), py::arg("phase_s"),
               py::arg("period_s"),
               "When each value was published by a grid; None where it can't hold the readings. Firsts are the numbers "
               "of those that saw a new value.");
    module.def("fitting_periods", &fitting_periods, py::arg("period_s"), py::arg("brackets"), py::arg("quiet"),
               py::arg("half_s"), py::arg("slack_s"),
               "Periods that readings allow, earliest and latest phase of each.");
}
