// How a board's sensors show its load: each on its own grid, late, smoothed, averaged or in whole steps.
#pragma once

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "fake_load.h"
#include "fake_settings.h"

namespace fake {

constexpr double kMs = 1e-3;
constexpr unsigned kNumSamples = 120;

struct Sample {
    double t_s, power_w;
};

// Times are seconds since the epoch of the load.
struct Sensor {
    double counter_period_s = 0.100;
    double counter_lag_s = 0;
    double counter_gain = 1;
    double sample_period_s = 0.020;
    double sample_jitter_s = 0;  // each sample is up to this much early or late
    double sample_late_s = 0;    // a few come later by up to this
    double sample_lost_fraction = 0;
    double sample_tau_s = 0;
    double sample_step_w = 0;
    double polled_period_s = 0;  // 0: a polled field is read live
    double polled_wander_s = 0;
    double average_s = 1.0;
    int64_t zero_every = 0;     // glitches: each so manieth sample reads 0
    double reset_s = INFINITY;  // the counter starts again from nothing

    // ideal, h200 as measured on that board, or gh200, whose counter and power contradict each other.
    explicit Sensor(const std::string& name) {
        if (name == "h200") {
            sample_jitter_s = 3 * kMs;
            sample_late_s = 11 * kMs;
            sample_lost_fraction = 0.005;
            sample_tau_s = 10.9 * kMs;
            sample_step_w = 0.323;
            polled_period_s = 102 * kMs;
            polled_wander_s = 5 * kMs;
        } else if (name == "gh200") {
            counter_gain = 1.6;  // the counter is the module's, the power the GPU's
        } else if (name != "ideal") {
            throw std::invalid_argument("unknown sensor " + name);
        }
    }

    double phase_s(int device) const { return std::fmod(device * 0.037, counter_period_s); }  // boards are not in step

    // In J; what was counted before the process began is not in it.
    double counter_j(const Load& load, double now_s, int device) const {
        const double phase = phase_s(device);
        const double published_s = std::floor((now_s - phase) / counter_period_s) * counter_period_s + phase;
        const double counted_s = published_s - counter_lag_s;
        if (counted_s < reset_s) return counter_gain * load.energy_j(counted_s);
        return load.energy_j(counted_s) - load.energy_j(reset_s) - kCountedBefore_j;
    }

    // The newest samples at a time, oldest first.
    std::vector<Sample> samples(const Load& load, double now_s, int device, size_t count = kNumSamples) const {
        std::vector<Sample> found;
        const auto newest = static_cast<int64_t>(std::floor((now_s + sample_jitter_s) / sample_period_s));
        for (int64_t k = newest; found.size() < count; --k) {
            if (chance(seed(device), 4 * bits(k)) < sample_lost_fraction) continue;
            const double t_s = sample_time_s(k, device);
            if (t_s > now_s) continue;
            found.insert(found.begin(), {t_s, sample_w(load, k, t_s)});
        }
        return found;
    }

    double newest_w(const Load& load, double now_s, int device) const {
        if (polled_period_s == 0) return load.power_w(now_s);
        return samples(load, refreshed_s(now_s, device), device, 1).back().power_w;
    }

    double average_w(const Load& load, double now_s, int device) const {
        const double end_s = refreshed_s(now_s, device);
        return (load.energy_j(end_s) - load.energy_j(end_s - average_s)) / average_s;
    }

    static constexpr double kCountedBefore_j = 5'000'000;

  private:
    static uint64_t bits(int64_t k) { return static_cast<uint64_t>(k); }
    static uint64_t seed(int device) { return static_cast<uint64_t>(device) + 1; }

    double sample_time_s(int64_t k, int device) const {
        const double jitter_s = sample_jitter_s * (2 * chance(seed(device), 4 * bits(k) + 1) - 1);
        const double late = chance(seed(device), 4 * bits(k) + 2);
        constexpr double kLateFraction = 0.02;
        const double late_s = late < kLateFraction ? sample_late_s * late / kLateFraction : 0;
        return static_cast<double>(k) * sample_period_s + std::fmod(device * 0.037, sample_period_s) + jitter_s +
               late_s;
    }

    double sample_w(const Load& load, int64_t k, double t_s) const {
        if (zero_every > 0 && k % zero_every == 0) return 0;
        const double power_w = load.smoothed_w(t_s, sample_tau_s);
        return sample_step_w > 0 ? std::round(power_w / sample_step_w) * sample_step_w : power_w;
    }

    // When a polled field was last refreshed: on a grid of its own that wanders.
    double refreshed_s(double now_s, int device) const {
        if (polled_period_s == 0) return now_s;
        const auto k = static_cast<int64_t>(std::floor((now_s - polled_wander_s) / polled_period_s));
        for (int64_t candidate = k + 1;; --candidate) {
            const double wander_s = polled_wander_s * chance(seed(device), 4 * bits(candidate) + 3);
            const double t_s = static_cast<double>(candidate) * polled_period_s + wander_s;
            if (t_s <= now_s) return t_s;
        }
    }
};

}  // namespace fake
