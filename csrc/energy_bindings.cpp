// Conversion, checks of lengths and docstrings; nothing else.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <stdexcept>

#include "counter_filter.h"
#include "grid_phases.h"
#include "linear_columns.h"
#include "low_pass.h"

namespace py = pybind11;
using namespace pybench;

namespace {

using Column = py::array_t<double, py::array::c_style | py::array::forcecast>;
using Numbers = py::array_t<double>;
using Part = std::array<Numbers, 7>;

size_t length(const Column& column) {
    if (column.ndim() != 1) throw std::invalid_argument("not one column");
    return static_cast<size_t>(column.size());
}

std::vector<py::ssize_t> shape_of(const Column& column) { return {column.shape(), column.shape() + column.ndim()}; }

void require_equal(size_t one, size_t other) {
    if (one != other) throw std::invalid_argument("columns differ in length");
}

double noise_part(const Column& power_w) {
    if (length(power_w) < 3) throw std::invalid_argument("less than three samples");
    return middle_deviation(power_w.data(), length(power_w));
}

// num values or steps, with one or all of the hypotheses.
Table table_of(const Numbers& numbers, size_t num, size_t num_hypotheses) {
    if (numbers.ndim() != 2) throw std::invalid_argument("not by value and hypothesis");
    require_equal(static_cast<size_t>(numbers.shape(0)), num);
    if (numbers.shape(1) == 1) return {numbers.data(), {numbers.strides(0), 0}};
    require_equal(static_cast<size_t>(numbers.shape(1)), num_hypotheses);
    return {numbers.data(), {numbers.strides(0), numbers.strides(1)}};
}

CounterPart part_of(const Part& part, size_t num_hypotheses) {
    const auto& [value_j, value_j2, spent_j, taken_j, spent_j2, taken_j2, in_step_j] = part;
    if (value_j.ndim() != 2 || value_j.shape(0) < 1) throw std::invalid_argument("no value");
    const size_t num = static_cast<size_t>(value_j.shape(0));
    const auto step = [&](const Numbers& numbers) { return table_of(numbers, num - 1, num_hypotheses); };
    return {num,
            table_of(value_j, num, num_hypotheses),
            table_of(value_j2, num, num_hypotheses),
            step(spent_j),
            step(taken_j),
            step(spent_j2),
            step(taken_j2),
            step(in_step_j)};
}

// Logarithm of the weight, joules, variance and misfit, by hypothesis.
std::array<Numbers, 4> filtered(const std::vector<Part>& parts, const Column& belief, double gain_spread,
                                double step_spread, const Column& beyond_j, const Column& beyond_j2) {
    const size_t num = length(belief);
    require_equal(length(beyond_j), num);
    require_equal(length(beyond_j2), num);
    std::vector<CounterPart> columns;
    for (const Part& part : parts) columns.push_back(part_of(part, num));
    std::array<Numbers, 4> found;
    for (Numbers& column : found) column = Numbers(num);
    for (size_t hypothesis = 0; hypothesis < num; ++hypothesis) {
        CounterFilter filter(belief.at(hypothesis), gain_spread, step_spread);
        for (const CounterPart& part : columns) filter.follow(part, hypothesis);
        const FilterOutcome outcome = filter.outcome(beyond_j.at(hypothesis), beyond_j2.at(hypothesis));
        const std::array<double, 4> values{outcome.log_weight, outcome.energy_j, outcome.variance_j2, outcome.misfit};
        for (size_t at = 0; at < values.size(); ++at) found[at].mutable_at(hypothesis) = values[at];
    }
    return found;
}

std::vector<SpanS> spans_of(const Column& low_s, const Column& high_s) {
    require_equal(length(low_s), length(high_s));
    std::vector<SpanS> spans;
    for (size_t at = 0; at < length(low_s); ++at) spans.push_back({low_s.at(at), high_s.at(at)});
    return spans;
}

// Periods with their earliest and latest phases.
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

// None if the grid can't hold the readings.
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

// One row for each column, in the shape of the times.
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

// A row for each field of a piece, a column for each piece; and the blind time.
std::pair<Numbers, double> undone_pieces(const Column& time_s, const Column& power_w, const Column& noise_w,
                                         double tau_s, double period_s, double gap_s) {
    require_equal(length(time_s), length(power_w));
    require_equal(length(time_s), length(noise_w));
    if (length(time_s) < 2) throw std::invalid_argument("less than two samples");
    const Undone result =
        undone({time_s.data(), power_w.data(), noise_w.data(), length(time_s), tau_s, period_s, gap_s});
    constexpr std::array kRows{&Piece::end_s,    &Piece::energy_j,   &Piece::sigma_j,
                               &Piece::missed_j, &Piece::counted_j2, &Piece::unsteady_j};
    Numbers rows(std::array{kRows.size(), result.pieces.size()});
    auto values = rows.mutable_unchecked<2>();
    for (size_t row = 0; row < kRows.size(); ++row)
        for (size_t at = 0; at < result.pieces.size(); ++at) values(row, at) = result.pieces[at].*kRows[row];
    return {rows, result.blind_s};
}

}  // namespace

PYBIND11_MODULE(_energy, module, py::mod_gil_not_used()) {
    module.doc() = "Loops over samples, periods and hypotheses for the energy of a window.";

    module.def("middle_deviation", &noise_part, py::arg("power_w"),
               "Median deviation of samples from their neighbours' mean, as a fraction of their power.");
    module.def("undone", &undone_pieces, py::arg("time_s"), py::arg("power_w"), py::arg("noise_w"), py::kw_only(),
               py::arg("tau_s"), py::arg("period_s"), py::arg("gap_s"),
               "Undo a low-pass: rows end_s, energy_j, sigma_j, missed_j, counted_j2, unsteady_j of the load's "
               "pieces; and blind_s.");
    module.def("filtered", &filtered, py::arg("parts"), py::arg("belief"), py::arg("gain_spread"),
               py::arg("step_spread"), py::arg("beyond_j"), py::arg("beyond_j2"),
               "Logarithm of the weight, joules, their variance and the misfit, by hypothesis.");
    module.def("interpolated", &interpolated, py::arg("time_s"), py::arg("columns"), py::arg("at_s"),
               "Interpolate each column linearly at each time; constant beyond the ends.");
    module.def("within", &within, py::arg("ends_s"), py::arg("ends"), py::arg("at_s"), py::arg("sums"),
               "The part of a running sum within windows up to each time.");
    module.def("published", &published, py::arg("before_s"), py::arg("after_s"), py::arg("firsts"), py::arg("phase_s"),
               py::arg("period_s"),
               "Times at which each value was published on a grid; None if it can't hold the readings. ``firsts`` are "
               "the indices of the first reading of each value.");
    module.def("fitting_periods", &fitting_periods, py::arg("period_s"), py::arg("brackets"), py::arg("quiet"),
               py::arg("half_s"), py::arg("slack_s"),
               "Periods that readings allow, with the earliest and latest phase of each.");
}
