// The loops behind the energy of a window, over few, alike and wild samples: for the sanitizers.
#include <cmath>
#include <cstdio>
#include <random>

#include "counter_filter.h"
#include "grid_phases.h"
#include "linear_columns.h"
#include "low_pass.h"

using namespace pybench;

namespace {

std::mt19937 generator(1);

double uniform(double low, double high) { return std::uniform_real_distribution<double>(low, high)(generator); }

std::vector<double> column(size_t size, double low, double high) {
    std::vector<double> values(size);
    for (double& value : values) value = uniform(low, high);
    return values;
}

bool values_are_filtered(size_t num_values) {
    const size_t num_steps = num_values - 1;
    const auto table = [](const std::vector<double>& values) { return Table{values.data(), {8, 0}}; };
    const std::vector<double> value_j = column(num_values, 0, 900), value_j2 = column(num_values, 0.1, 1),
                              energy_j = column(num_steps, 1, 90), doubt_j2 = column(num_steps, 0.1, 1);
    const CounterPart part{num_values,      table(value_j),  table(value_j2), table(energy_j),
                           table(energy_j), table(doubt_j2), table(doubt_j2), table(doubt_j2)};
    CounterFilter filter(0.5, 1e-3, 0.75);
    for (int curve = 0; curve < 2; ++curve) filter.follow(part, 3);
    const FilterOutcome outcome = filter.outcome(1.0, 0.1);
    return std::isfinite(outcome.log_weight) && std::isfinite(outcome.energy_j) && outcome.misfit > 0;
}

bool periods_are_tried(size_t num_spans) {
    StepSpans steps;
    for (size_t at = 0; at < num_spans; ++at) {
        const double low_s = 0.1 * static_cast<double>(at) - 0.002;
        steps.brackets.push_back({low_s, low_s + 0.004});
        steps.quiet.push_back({low_s + 0.004, low_s + 0.09});
    }
    return phases_s(steps, 0.1, 0.002, 1e-6) && (num_spans < 2 || !phases_s(steps, 0.07, 0.002, 1e-6));
}

bool cells_are_undone(size_t size) {
    std::vector<double> time_s(size);
    for (size_t at = 0; at < size; ++at) time_s[at] = 0.02 * static_cast<double>(at);
    const std::vector<double> power_w = column(size, 100, 700), noise_w = column(size, 0.1, 1);
    const Undone found = undone({time_s.data(), power_w.data(), noise_w.data(), size, 0.0109, 0.02, 0.3});
    for (const Piece& piece : found.pieces)
        if (!std::isfinite(piece.energy_j + piece.sigma_j + piece.unsteady_j)) return false;
    return found.pieces.size() >= size - 1;
}

bool values_are_placed(size_t num_values) {
    ValueReadings readings;
    for (size_t at = 0; at < 2 * num_values; ++at) {
        const double low_s = 0.1 * static_cast<double>((at + 1) / 2) + (at % 2 == 1 ? -0.006 : 0.002);
        readings.made.push_back({low_s, low_s + 0.003});
        if (at % 2 == 0) readings.firsts.push_back(at);
    }
    const auto numbers = publications(readings, 0.0, 0.1);
    return numbers && numbers->size() == num_values && (num_values < 3 || !publications(readings, 0.0, 0.9));
}

bool columns_are_interpolated(size_t size) {
    std::vector<double> time_s(size);
    for (size_t at = 0; at < size; ++at) time_s[at] = 0.02 * static_cast<double>(at);
    const std::vector<double> sums_j = column(size, 1, 90), ones(size, 1.0), at_s = column(40, -1, 2);
    const LinearColumns linear{time_s.data(), size, {sums_j.data(), ones.data()}};
    std::vector<double> values(80), within(40);
    linear.at(at_s.data(), at_s.size(), values.data());
    within_windows({0.0, 0.1, 0.2, 0.3}, sums_j.data(), at_s.data(), values.data(), at_s.size(), within.data());
    for (size_t at = 0; at < at_s.size(); ++at)
        if (!std::isfinite(values[at]) || values[at + 40] != 1.0 || !std::isfinite(within[at])) return false;
    return true;
}

}  // namespace

int main() {
    for (const size_t num_values : {1, 2, 48})
        if (!values_are_filtered(num_values)) return 1;
    for (const size_t num_spans : {0, 1, 40})
        if (!periods_are_tried(num_spans)) return 2;
    for (const size_t size : {2, 3, 400})
        if (!cells_are_undone(size)) return 3;
    for (const size_t num_values : {0, 1, 40})
        if (!values_are_placed(num_values)) return 4;
    for (const size_t size : {4, 50})
        if (!columns_are_interpolated(size)) return 5;
    std::printf("every loop ended\n");
    return 0;
}
