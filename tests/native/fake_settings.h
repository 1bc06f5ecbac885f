// What a fake driver is told through the environment, and how it is spelt.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace fake {

constexpr int kNoDevice = -1;

inline std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
    return parts;
}

inline std::string variable(const std::string& name, const std::string& fallback) {
    const char* value = std::getenv(("FAKE_NVML_" + name).c_str());
    return value != nullptr && *value != '\0' ? value : fallback;
}

inline int64_t number(const std::string& name, int64_t fallback) {
    return std::stoll(variable(name, std::to_string(fallback)));
}

// One device's: several, parted by ";", go to the devices in turn.
inline std::string text_of(int device, const std::string& told) {
    const std::vector<std::string> parts = split(told, ';');
    return parts[static_cast<size_t>(device) % parts.size()];
}

inline int64_t number_of(int device, const std::string& name, int64_t fallback) {
    return std::stoll(text_of(device, variable(name, std::to_string(fallback))));
}

// FUNCTION:VALUE[:DEVICE][@after=MS][@until=MS][@call=N[-M]][@every=N-K]; "*" is every call about a device, "all" every
// call. Times run from nvmlInit, calls of a function about a device are counted from 1. "every": the K-th of each N
// calls of any function.
struct Rule {
    explicit Rule(const std::string& text) {
        const std::vector<std::string> clauses = split(text, '@');
        const std::vector<std::string> parts = split(clauses.at(0), ':');
        function = parts.at(0);
        value = std::stoll(parts.at(1));
        if (parts.size() > 2) device = std::stoi(parts[2]);
        for (size_t i = 1; i < clauses.size(); ++i) {
            const std::vector<std::string> clause = split(clauses[i], '=');
            const std::vector<std::string> range = split(clause.at(1), '-');
            if (clause[0] == "after") after_ms = std::stoll(range.at(0));
            if (clause[0] == "until") until_ms = std::stoll(range.at(0));
            if (clause[0] == "call") {
                first_call = std::stoull(range.at(0));
                last_call = std::stoull(range.back());
            }
            if (clause[0] == "every") {
                of_each = std::stoull(range.at(0));
                which = std::stoull(range.back()) % of_each;
            }
        }
    }

    bool is_due(uint64_t any_call) const { return any_call % of_each == which; }

    bool applies(const std::string& called, int about, int64_t since_ms, uint64_t call, uint64_t any_call) const {
        const bool named = function == called || function == "all" || (function == "*" && about != kNoDevice);
        return named && is_due(any_call) && (device == kNoDevice || device == about) && since_ms >= after_ms &&
               since_ms < until_ms && call >= first_call && call <= last_call;
    }

    std::string function;
    int64_t value;
    int device = kNoDevice;
    int64_t after_ms = 0, until_ms = INT64_MAX;
    uint64_t first_call = 0, last_call = UINT64_MAX, of_each = 1, which = 0;
};

inline std::vector<Rule> rules(const std::string& name) {
    std::vector<Rule> found;
    for (const std::string& text : split(variable(name, ""), ',')) found.emplace_back(text);
    return found;
}

}  // namespace fake
