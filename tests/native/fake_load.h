// A load whose power is known in closed form: periodic, constant between its steps.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fake_settings.h"

namespace fake {

// Same for the same arguments in every run, spread over [0, 1).
inline double chance(uint64_t a, uint64_t b) {
    uint64_t x = a * 0x9E3779B97F4A7C15ULL + b * 0xD1B54A32D192ED03ULL + 0x2545F4914F6CDD1DULL;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
    return static_cast<double>((x ^ (x >> 31)) >> 11) / 9007199254740992.0;
}

class Load {
  public:
    // constant:W  square:LOW:HIGH:HALF_MS  pulse:LOW:HIGH:PERIOD_MS:HIGH_FRACTION  decode:LOW:HIGH:HZ
    // bursty:LOW:HIGH:SEED, bursts and pauses of 20 ms to 1 s
    explicit Load(const std::string& text) {
        const std::vector<std::string> parts = split(text, ':');
        const auto number = [&](size_t i) { return std::stod(parts.at(i)); };
        if (parts.at(0) == "constant") {
            add(1.0, number(1));
        } else if (parts[0] == "square") {
            pulse(number(1), number(2), 2 * number(3) / 1e3, 0.5);
        } else if (parts[0] == "pulse") {
            pulse(number(1), number(2), number(3) / 1e3, number(4));
        } else if (parts[0] == "decode") {
            pulse(number(1), number(2), 1 / number(3), 0.5);
        } else if (parts[0] == "bursty") {
            bursts(number(1), number(2), static_cast<uint64_t>(number(3)));
        } else {
            throw std::invalid_argument("unknown load " + text);
        }
    }

    double power_w(double t_s) const { return pieces_[at(t_s).first].power_w; }

    // Integral from 0; negative before.
    double energy_j(double t_s) const {
        const auto [i, cycle_start_s] = at(t_s);
        const double cycles = std::round(cycle_start_s / period_s_);
        const Piece& piece = pieces_[i];
        return cycles * period_j_ + piece.before_j + piece.power_w * (t_s - cycle_start_s - piece.start_s);
    }

    // Power behind a first-order low-pass.
    double smoothed_w(double t_s, double tau_s) const {
        if (tau_s <= 0) return power_w(t_s);
        auto [i, cycle_start_s] = at(t_s);
        double smoothed = 0, weight = 1;  // of what lies further back
        for (double end_s = t_s; weight > 1e-9;) {
            const double start_s = cycle_start_s + pieces_[i].start_s;
            const double further = weight * std::exp(-(end_s - start_s) / tau_s);
            smoothed += pieces_[i].power_w * (weight - further);
            weight = further;
            end_s = start_s;
            if (i == 0) cycle_start_s -= period_s_;
            i = i == 0 ? pieces_.size() - 1 : i - 1;
        }
        return smoothed / (1 - weight);
    }

  private:
    struct Piece {
        double start_s, power_w, before_j;
    };

    void add(double length_s, double power_w) {
        pieces_.push_back({period_s_, power_w, period_j_});
        period_s_ += length_s;
        period_j_ += length_s * power_w;
    }

    void pulse(double low_w, double high_w, double period_s, double high_fraction) {
        add(period_s * (1 - high_fraction), low_w);
        add(period_s * high_fraction, high_w);
    }

    void bursts(double low_w, double high_w, uint64_t seed) {
        constexpr uint64_t kBursts = 1000;
        for (uint64_t i = 0; i < kBursts; ++i) {
            add(0.02 * std::pow(50.0, chance(seed, 3 * i)), low_w);
            add(0.02 * std::pow(50.0, chance(seed, 3 * i + 1)), low_w + (high_w - low_w) * chance(seed, 3 * i + 2));
        }
    }

    // The piece that holds t, and when its cycle began.
    std::pair<size_t, double> at(double t_s) const {
        const double cycle_start_s = std::floor(t_s / period_s_) * period_s_;
        const auto after = std::upper_bound(pieces_.begin(), pieces_.end(), t_s - cycle_start_s,
                                            [](double t, const Piece& piece) { return t < piece.start_s; });
        return {static_cast<size_t>(std::max<std::ptrdiff_t>(after - pieces_.begin() - 1, 0)), cycle_start_s};
    }

    std::vector<Piece> pieces_;
    double period_s_ = 0, period_j_ = 0;
};

}  // namespace fake
