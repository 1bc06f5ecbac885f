// Working readings of a GPU, and its state.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "nvml_api.h"

namespace pybench {

enum Capability : unsigned {
    kCounter,
    kSeries,
    kInstant,
    kAverage,
    kMemory,
    kTemperature,
    kSmClock,
    kMemoryClock,
    kUtilization,
    kClockEventReasons,
    kNumCapabilities
};

enum class State : uint32_t { ok, lost, no_permission, not_supported, error, stalled };

// The driver lacks the reading: not a failure, and never retried.
bool means_missing(nvmlReturn_t code);
bool means_no_such_gpu(nvmlReturn_t code);
std::string name_of(State state);
std::vector<std::string> capability_names(uint32_t mask);

// Last answer of each reading. Refused readings are not retried.
class Capabilities {
  public:
    // refused: readings known not to exist, as a bit mask
    explicit Capabilities(uint32_t refused = 0);

    void note(Capability capability, nvmlReturn_t code);
    void watch(nvmlReturn_t code);   // notes a lost GPU by any call's code
    void refuse(nvmlReturn_t code);  // all readings, permanently
    bool refused() const { return refused_; }
    bool lost() const { return lost_; }
    bool wanted(Capability capability) const;
    uint32_t working() const;  // bit masks over Capability
    uint32_t missing() const;
    State state() const;

  private:
    std::array<nvmlReturn_t, kNumCapabilities> codes_;
    bool lost_ = false, refused_ = false;
};

// Readings that a GPU lacks under a driver, kept for the process: a new session does not probe for them.
uint32_t remembered_missing(const std::string& uuid, const std::string& driver);
void remember_missing(const std::string& uuid, const std::string& driver, uint32_t mask);

}  // namespace pybench
