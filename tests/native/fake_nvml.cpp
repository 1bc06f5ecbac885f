// A stand-in for libnvidia-ml.so.1 whose power, and so whose joules, are known in closed form.
//
// Read from the environment at nvmlInit:
//   FAKE_NVML_DEVICES  number of GPUs, default 2
//   FAKE_NVML_LOAD     constant:<W> or square:<low W>:<high W>:<half period ms>, default constant:400
//   FAKE_NVML_FAIL     <function>:<code>[:<device>],... "*" is every call about a device
//   FAKE_NVML_FAIL_AFTER_MS  failures begin this long after nvmlInit, default 0
//   FAKE_NVML_HANG     <function>:<ms>:<device>, each such call takes that long
// Built with -DFAKE_NVML_OLD it lacks the sample buffer and the power fields, as drivers before them do.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "nvml_api.h"

using namespace pybench;

namespace {

constexpr int kUninitialized = 1, kInvalidArgument = 2;
constexpr int kMaxDevices = 16, kNoDevice = -1;
constexpr int kUnsignedInt = 1;
constexpr int64_t kCounterPeriod_ns = 100'000'000, kSamplePeriod_ns = 20'000'000;
constexpr unsigned kNumSamples = 120;
constexpr int64_t kGpuPhase_ns = 37'000'000;         // boards do not publish in step
constexpr uint64_t kCounterBase_mj = 5'000'000'000;  // what the driver counted before the process began

int64_t read_clock(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

int64_t now_ns() { return read_clock(CLOCK_MONOTONIC); }

const int64_t epoch_ns = now_ns();
const int64_t realtime_offset_ns = read_clock(CLOCK_REALTIME) - now_ns();

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
    return parts;
}

std::string variable(const char* name, const char* fallback) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0' ? value : fallback;
}

struct Load {
    double low_w = 400, high_w = 400, half_s = 1;

    double power_w(double t_s) const { return std::fmod(std::floor(t_s / half_s), 2.0) == 0.0 ? low_w : high_w; }
    // Integral from the epoch, low half first; negative before the epoch.
    double energy_j(double t_s) const {
        const double period_s = 2 * half_s, cycles = std::floor(t_s / period_s), rest_s = t_s - cycles * period_s;
        return cycles * half_s * (low_w + high_w) + std::min(rest_s, half_s) * low_w +
               std::max(rest_s - half_s, 0.0) * high_w;
    }
};

struct Rule {
    std::string function;
    int value;  // code or ms
    int device;
};

struct Config {
    int devices = 2;
    Load load;
    std::vector<Rule> fail;
    std::vector<Rule> hang;
    int64_t fail_from_ns = 0;
};

std::vector<Rule> rules(const std::string& text) {
    std::vector<Rule> found;
    for (const std::string& rule : split(text, ',')) {
        const std::vector<std::string> parts = split(rule, ':');
        found.push_back({parts.at(0), std::stoi(parts.at(1)), parts.size() > 2 ? std::stoi(parts[2]) : kNoDevice});
    }
    return found;
}

Config read_config() {
    Config config;
    config.devices = std::stoi(variable("FAKE_NVML_DEVICES", "2"));
    const std::vector<std::string> load = split(variable("FAKE_NVML_LOAD", "constant:400"), ':');
    config.load.low_w = config.load.high_w = std::stod(load.at(1));
    if (load[0] == "square") {
        config.load.high_w = std::stod(load.at(2));
        config.load.half_s = std::stod(load.at(3)) / 1e3;
    }
    config.fail = rules(variable("FAKE_NVML_FAIL", ""));
    config.hang = rules(variable("FAKE_NVML_HANG", ""));
    config.fail_from_ns = now_ns() + std::stoll(variable("FAKE_NVML_FAIL_AFTER_MS", "0")) * 1'000'000;
    return config;
}

std::mutex mutex;              // guards what follows: init and shutdown may meet a call that hung
Config& config = *new Config;  // never destroyed: a call that hung may outlive main
int sessions = 0;

Config current() {
    const std::lock_guard<std::mutex> lock(mutex);
    return config;
}

char handles[kMaxDevices];  // a handle is the address of its slot

nvmlDevice_t handle_of(int index) { return reinterpret_cast<nvmlDevice_t>(&handles[index]); }
int index_of(nvmlDevice_t device) { return static_cast<int>(reinterpret_cast<char*>(device) - handles); }

bool applies(const Rule& rule, const char* function, int device) {
    const bool named = rule.function == function || (rule.function == "*" && device != kNoDevice);
    return named && (rule.device == kNoDevice || rule.device == device);
}

// What every call does first: hang, then fail, as told.
nvmlReturn_t enter(const char* function, int device = kNoDevice) {
    const Config config = current();
    for (const Rule& rule : config.hang) {
        if (!applies(rule, function, device)) continue;
        const timespec length{rule.value / 1000, rule.value % 1000 * 1'000'000L};
        nanosleep(&length, nullptr);
    }
    {
        const std::lock_guard<std::mutex> lock(mutex);
        if (sessions == 0) return kUninitialized;
    }
    if (device != kNoDevice && (device < 0 || device >= config.devices)) return kInvalidArgument;
    for (const Rule& rule : config.fail) {
        if (applies(rule, function, device) && now_ns() >= config.fail_from_ns) return rule.value;
    }
    return kSuccess;
}

// Newest point of a board's grid at or before t, from the epoch.
int64_t grid_ns(int64_t t_ns, int64_t period_ns, int device) {
    const int64_t phase_ns = device * kGpuPhase_ns % period_ns, past = t_ns - phase_ns;
    return phase_ns + (past >= 0 ? past / period_ns : -((-past + period_ns - 1) / period_ns)) * period_ns;
}

unsigned to_mw(double power_w) { return static_cast<unsigned>(std::lround(power_w * 1e3)); }

double since_epoch_s() { return static_cast<double>(now_ns() - epoch_ns) / 1e9; }

unsigned average_mw(const Load& load) {
    const double t_s = since_epoch_s();
    return to_mw(load.energy_j(t_s) - load.energy_j(t_s - 1.0));
}

nvmlReturn_t write_text(char* out, unsigned size, const std::string& text) {
    if (text.size() >= size) return kInsufficientSize;
    std::memcpy(out, text.c_str(), text.size() + 1);
    return kSuccess;
}

std::string uuid_of(int index) {
    return "GPU-0000000" + std::to_string(index % 10) + "-fake-4000-8000-00000000000" + std::to_string(index % 10);
}

template <typename Value>
nvmlReturn_t answer(const char* function, nvmlDevice_t device, Value* out, Value value) {
    const nvmlReturn_t code = enter(function, index_of(device));
    if (code == kSuccess) *out = value;
    return code;
}

}  // namespace

// NOLINTBEGIN: names and types are NVML's
extern "C" {

// When this library's clock stood at zero (CLOCK_MONOTONIC): the phase of the square load.
int64_t fake_nvml_epoch_ns() { return epoch_ns; }

nvmlReturn_t nvmlInitWithFlags(unsigned) {
    const std::lock_guard<std::mutex> lock(mutex);
    Config fresh = read_config();
    for (const Rule& rule : fresh.fail) {
        if (rule.function == "nvmlInit") return rule.value;
    }
    config = std::move(fresh);
    ++sessions;
    return kSuccess;
}

nvmlReturn_t nvmlInit_v2() { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown() {
    const std::lock_guard<std::mutex> lock(mutex);
    if (sessions == 0) return kUninitialized;
    --sessions;
    return kSuccess;
}

const char* nvmlErrorString(nvmlReturn_t code) {
    switch (code) {
        case kSuccess:
            return "Success";
        case kUninitialized:
            return "Uninitialized";
        case kNotSupported:
            return "Not Supported";
        case kNoPermission:
            return "Insufficient Permissions";
        case kNotFound:
            return "Not Found";
        case 9:
            return "Driver Not Loaded";
        case kGpuIsLost:
            return "GPU is lost";
        default:
            return "Unknown Error";
    }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char* out, unsigned size) {
    const nvmlReturn_t code = enter("nvmlSystemGetDriverVersion");
    return code == kSuccess ? write_text(out, size, "580.00.fake") : code;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) {
    const nvmlReturn_t code = enter("nvmlSystemGetCudaDriverVersion_v2");
    if (code == kSuccess) *version = 13000;
    return code;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
    const nvmlReturn_t code = enter("nvmlDeviceGetCount_v2");
    if (code == kSuccess) *count = static_cast<unsigned>(current().devices);
    return code;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
    const nvmlReturn_t code = enter("nvmlDeviceGetHandleByIndex_v2", static_cast<int>(index));
    if (code == kSuccess) *device = handle_of(static_cast<int>(index));
    return code;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
    for (int index = 0; index < current().devices; ++index) {
        if (uuid_of(index) != uuid) continue;
        const nvmlReturn_t code = enter("nvmlDeviceGetHandleByUUID", index);
        if (code == kSuccess) *device = handle_of(index);
        return code;
    }
    return kNotFound;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* out, unsigned size) {
    const nvmlReturn_t code = enter("nvmlDeviceGetUUID", index_of(device));
    return code == kSuccess ? write_text(out, size, uuid_of(index_of(device))) : code;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* out, unsigned size) {
    const nvmlReturn_t code = enter("nvmlDeviceGetName", index_of(device));
    return code == kSuccess ? write_text(out, size, "NVIDIA H200") : code;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned* index) {
    return answer("nvmlDeviceGetIndex", device, index, static_cast<unsigned>(index_of(device)));
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long* energy_mj) {
    const int index = index_of(device);
    const int64_t published_ns = grid_ns(now_ns() - epoch_ns, kCounterPeriod_ns, index);
    const double since_j = current().load.energy_j(static_cast<double>(published_ns) / 1e9);
    const auto value = static_cast<int64_t>(kCounterBase_mj) + std::llround(since_j * 1e3);
    return answer("nvmlDeviceGetTotalEnergyConsumption", device, energy_mj, static_cast<unsigned long long>(value));
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned* power_mw) {
    return answer("nvmlDeviceGetPowerUsage", device, power_mw, average_mw(current().load));
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int, unsigned* temperature_c) {
    return answer("nvmlDeviceGetTemperature", device, temperature_c, 55U);
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int, unsigned* clock_mhz) {
    return answer("nvmlDeviceGetClockInfo", device, clock_mhz, 1980U);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, int kind, unsigned* clock_mhz) {
    return answer("nvmlDeviceGetMaxClockInfo", device, clock_mhz, kind == kClockSm ? 1980U : 3201U);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long* reasons) {
    return answer("nvmlDeviceGetCurrentClocksThrottleReasons", device, reasons, 0ULL);
}

#ifndef FAKE_NVML_OLD
nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, int kind, unsigned long long last_seen_us, int* value_type,
                                  unsigned* count, nvmlSample_t* samples) {
    const int index = index_of(device);
    const nvmlReturn_t code = enter("nvmlDeviceGetSamples", index);
    if (code != kSuccess) return code;
    if (kind != kTotalPowerSamples) return kNotSupported;
    *value_type = kUnsignedInt;
    if (samples == nullptr) {
        *count = kNumSamples;
        return kSuccess;
    }
    const Load load = current().load;
    const int64_t newest_ns = grid_ns(now_ns() - epoch_ns, kSamplePeriod_ns, index);
    unsigned written = 0;
    for (unsigned i = 0; i < kNumSamples && written < *count; ++i) {
        const int64_t at_ns = newest_ns - static_cast<int64_t>(kNumSamples - 1 - i) * kSamplePeriod_ns;
        const auto stamp_us = static_cast<unsigned long long>((at_ns + epoch_ns + realtime_offset_ns) / 1000);
        if (stamp_us <= last_seen_us) continue;
        samples[written].timeStamp = stamp_us;
        samples[written++].sampleValue.uiVal = to_mw(load.power_w(static_cast<double>(at_ns) / 1e9));
    }
    *count = written;
    return written == 0 ? kNotFound : kSuccess;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t* values) {
    const nvmlReturn_t code = enter("nvmlDeviceGetFieldValues", index_of(device));
    if (code != kSuccess) return code;
    const Load load = current().load;
    for (nvmlFieldValue_t* field = values; field < values + count; ++field) {
        field->valueType = kUnsignedInt;
        field->nvmlReturn = kSuccess;
        if (field->fieldId == kFieldPowerInstant) {
            field->value.uiVal = to_mw(load.power_w(since_epoch_s()));
        } else if (field->fieldId == kFieldPowerAverage) {
            field->value.uiVal = average_mw(load);
        } else {
            field->nvmlReturn = kNotSupported;
        }
    }
    return kSuccess;
}
#endif

struct FakeMemory {
    unsigned long long total, free, used;
};

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, FakeMemory* memory) {
    constexpr unsigned long long total = 150'000'000'000, used = 600'000'000;
    return answer("nvmlDeviceGetMemoryInfo", device, memory, FakeMemory{total, total - used, used});
}

struct FakePci {
    char legacy_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
};

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, FakePci* out) {
    FakePci pci{};
    std::snprintf(pci.id, sizeof pci.id, "00000000:%02X:00.0", 0x19 + index_of(device));
    return answer("nvmlDeviceGetPciInfo_v3", device, out, pci);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major, int* minor) {
    *minor = 0;
    return answer("nvmlDeviceGetCudaComputeCapability", device, major, 9);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned* limit_mw) {
    return answer("nvmlDeviceGetEnforcedPowerLimit", device, limit_mw, 650'000U);
}

nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned* limit_mw) {
    return answer("nvmlDeviceGetPowerManagementDefaultLimit", device, limit_mw, 700'000U);
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, int* current_mode, int* pending) {
    *pending = 1;
    return answer("nvmlDeviceGetEccMode", device, current_mode, 1);
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned* current_mode, unsigned* pending) {
    *pending = 0;
    return answer("nvmlDeviceGetMigMode", device, current_mode, 0U);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, int* mode) {
    return answer("nvmlDeviceGetPersistenceMode", device, mode, 1);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned* generation) {
    return answer("nvmlDeviceGetCurrPcieLinkGeneration", device, generation, 5U);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned* width) {
    return answer("nvmlDeviceGetCurrPcieLinkWidth", device, width, 16U);
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, int* active) {
    constexpr unsigned kNumLinks = 18;
    if (link >= kNumLinks) return kInvalidArgument;
    return answer("nvmlDeviceGetNvLinkState", device, active, 1);
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t, int* level) {
    constexpr int kTopologySystem = 50;
    return answer("nvmlDeviceGetTopologyCommonAncestor", device, level, kTopologySystem);
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t, int, int* status) {
    return answer("nvmlDeviceGetP2PStatus", device, status, 0);
}

}  // extern "C"
// NOLINTEND
