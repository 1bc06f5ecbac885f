// The part of NVML that pybench calls, opened at run time.
//
// Types and signatures restate NVML's public, versioned C ABI (NVIDIA "NVML API Reference Guide", nvml.h 12.x), so that
// neither the CUDA toolkit nor a driver is needed to build, install or import pybench.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace pybench {

using nvmlDevice_t = struct nvmlDevice_st*;
using nvmlReturn_t = int;  // an enum in nvml.h, int-sized in the ABI

constexpr nvmlReturn_t kSuccess = 0;
constexpr nvmlReturn_t kNotSupported = 3;
constexpr nvmlReturn_t kNoPermission = 4;
constexpr nvmlReturn_t kNotFound = 6;
constexpr nvmlReturn_t kInsufficientSize = 7;
constexpr nvmlReturn_t kLibraryNotFound = 12;
constexpr nvmlReturn_t kFunctionNotFound = 13;
constexpr nvmlReturn_t kGpuIsLost = 15;
constexpr nvmlReturn_t kResetRequired = 16;

constexpr unsigned kFieldPowerAverage = 185;  // NVML_FI_DEV_POWER_AVERAGE, mW
constexpr unsigned kFieldPowerInstant = 186;  // NVML_FI_DEV_POWER_INSTANT, mW
constexpr int kTotalPowerSamples = 0;         // NVML_TOTAL_POWER_SAMPLES
constexpr int kTemperatureGpu = 0;            // NVML_TEMPERATURE_GPU
constexpr int kClockSm = 1;                   // NVML_CLOCK_SM

union nvmlValue_t {
    double dVal;
    int siVal;
    unsigned uiVal;
    unsigned long ulVal;
    unsigned long long ullVal;
    long long sllVal;
    unsigned short usVal;
};

struct nvmlSample_t {
    unsigned long long timeStamp;  // CLOCK_REALTIME, microseconds
    nvmlValue_t sampleValue;
};

struct nvmlFieldValue_t {
    unsigned fieldId;
    unsigned scopeId;
    long long timestamp;
    long long latencyUsec;
    int valueType;
    nvmlReturn_t nvmlReturn;  // of this field; differs from the call's
    nvmlValue_t value;
};

static_assert(sizeof(nvmlSample_t) == 16 && sizeof(nvmlFieldValue_t) == 40, "NVML's ABI on 64-bit Linux");

// A failed NVML call: which, its code, NVML's text for it, and the device it was about ("" for none).
class NvmlError : public std::runtime_error {
  public:
    NvmlError(std::string call, nvmlReturn_t code, std::string text, std::string device);

    const std::string call;
    const nvmlReturn_t code;
    const std::string text;
    const std::string device;
};

struct DeviceInfo {
    std::string uuid;
    std::string name;
    unsigned index;
};

struct PowerSample {
    int64_t realtime_us;
    int64_t power_mw;
};

// One initialised NVML session; ends with its last owner. A symbol that this driver lacks answers kFunctionNotFound.
class Nvml {
  public:
    // Opens $PYBENCH_NVML_LIBRARY, else libnvidia-ml.so.1. Throws NvmlError.
    static std::shared_ptr<Nvml> open();
    ~Nvml();
    Nvml(const Nvml&) = delete;
    Nvml& operator=(const Nvml&) = delete;

    std::vector<DeviceInfo> devices() const;                     // throws NvmlError
    nvmlDevice_t device_by_uuid(const std::string& uuid) const;  // throws NvmlError
    DeviceInfo describe(nvmlDevice_t device) const;              // throws NvmlError

    // Readings return the code and write their output on kSuccess only: a device error is no exception.
    nvmlReturn_t energy_mj(nvmlDevice_t device, uint64_t* energy_mj) const;
    nvmlReturn_t power_samples(nvmlDevice_t device, uint64_t last_seen_us, std::vector<PowerSample>* out) const;
    // Either may stay empty when its field is unreadable; the call fails only when both are.
    nvmlReturn_t power_fields(nvmlDevice_t device, std::optional<int64_t>* instant_mw,
                              std::optional<int64_t>* average_mw) const;
    nvmlReturn_t power_usage_mw(nvmlDevice_t device, int64_t* power_mw) const;
    nvmlReturn_t temperature_c(nvmlDevice_t device, int64_t* temperature_c) const;
    nvmlReturn_t sm_clock_mhz(nvmlDevice_t device, int64_t* clock_mhz) const;
    nvmlReturn_t clock_event_reasons(nvmlDevice_t device, int64_t* reasons) const;

  private:
    struct Symbols;
    explicit Nvml(std::unique_ptr<Symbols> symbols);
    void check(nvmlReturn_t code, const char* call, const std::string& device = "") const;

    std::unique_ptr<Symbols> symbols_;
};

}  // namespace pybench
