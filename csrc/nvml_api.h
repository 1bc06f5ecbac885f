// The part of NVML that pybench calls, opened at run time. Nothing of NVIDIA's is linked; nvml.h gives the types.
#pragma once

#define NVML_NO_UNVERSIONED_FUNC_DEFS  // both nvmlInit and nvmlInit_v2 by their own names
#include <nvml.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace pybench {

// A failed NVML call: which, its code, NVML's text for it, and the device it was about ("" for none).
class NvmlError : public std::runtime_error {
  public:
    NvmlError(const std::string& call, int code, const std::string& text, const std::string& device)
        : std::runtime_error(call + (device.empty() ? "" : " on " + device) + ": " + text + " (code " +
                             std::to_string(code) + ")"),
          code(code) {}

    const int code;
};

struct GpuInfo {
    std::string uuid;
    std::string name;
    unsigned index;
};

struct PowerSample {
    int64_t realtime_us;
    int64_t power_mw;
};

// One field of one scope: two members are the request, the others the answer.
struct PowerField {
    unsigned field_id;
    unsigned scope;
    nvmlReturn_t code = NVML_ERROR_UNKNOWN;  // of this field; differs from the call's
    int64_t power_mw = 0;
};

// An initialised NVML session, ended with its last owner. A missing function answers FUNCTION_NOT_FOUND.
class Nvml {
  public:
    // Opens $PYBENCH_NVML_LIBRARY, else libnvidia-ml.so.1. Throws NvmlError.
    static std::shared_ptr<Nvml> open();
    ~Nvml();
    Nvml(const Nvml&) = delete;
    Nvml& operator=(const Nvml&) = delete;

    nvmlDevice_t gpu_by_uuid(const std::string& uuid) const;  // throws NvmlError
    GpuInfo describe(nvmlDevice_t gpu) const;                 // throws NvmlError
    std::string driver_version() const;                       // "" where unknown

    // Readings return the code and write their output on success only: a GPU's error is no exception.
    nvmlReturn_t energy_mj(nvmlDevice_t gpu, uint64_t* energy_mj) const;
    // Adds samples newer than last_seen_us. The driver reports its buffer's size when it is 0.
    nvmlReturn_t power_samples(nvmlDevice_t gpu, uint64_t last_seen_us, unsigned* size,
                               std::vector<PowerSample>* out) const;
    // Success means that every field has its own code.
    nvmlReturn_t power_fields(nvmlDevice_t gpu, std::vector<PowerField>* fields) const;
    nvmlReturn_t power_usage_mw(nvmlDevice_t gpu, int64_t* power_mw) const;
    nvmlReturn_t temperature_c(nvmlDevice_t gpu, int64_t* temperature_c) const;
    nvmlReturn_t clock_mhz(nvmlDevice_t gpu, nvmlClockType_t clock, int64_t* clock_mhz) const;
    nvmlReturn_t gpu_utilization_percent(nvmlDevice_t gpu, int64_t* percent) const;
    nvmlReturn_t clock_event_reasons(nvmlDevice_t gpu, int64_t* reasons) const;
    nvmlReturn_t mig_enabled(nvmlDevice_t gpu, int64_t* enabled) const;
    nvmlReturn_t on_shared_board(nvmlDevice_t gpu, int64_t* shared) const;

  private:
    struct Symbols;
    explicit Nvml(std::unique_ptr<Symbols> symbols);
    void check(nvmlReturn_t code, const char* call, const std::string& device = "") const;

    std::unique_ptr<Symbols> symbols_;
};

}  // namespace pybench
