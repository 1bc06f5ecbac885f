#include "nvml_api.h"

#include <dlfcn.h>

#include <cstdlib>
#include <utility>

namespace pybench {

namespace {

constexpr char kLibraryName[] = "libnvidia-ml.so.1";
constexpr char kLibraryVariable[] = "PYBENCH_NVML_LIBRARY";
constexpr unsigned kTextSize = 96;  // NVML_DEVICE_UUID_V2_BUFFER_SIZE, the longer of UUID and name
constexpr int kValueDouble = 0;     // NVML_VALUE_TYPE_DOUBLE

std::string describe_error(const std::string& call, nvmlReturn_t code, const std::string& text,
                           const std::string& device) {
    std::string message = call;
    if (!device.empty()) message += " on " + device;
    return message + ": " + text + " (code " + std::to_string(code) + ")";
}

// NVML names the type of a value beside it; power comes as an unsigned integer on every driver seen, double allowed.
int64_t to_integer(int type, const nvmlValue_t& value) {
    if (type == kValueDouble) return static_cast<int64_t>(value.dVal);
    constexpr int kUnsignedInt = 1, kSignedInt = 5, kUnsignedShort = 6;
    if (type == kUnsignedInt) return value.uiVal;
    if (type == kSignedInt) return value.siVal;
    if (type == kUnsignedShort) return value.usVal;
    return value.sllVal;
}

}  // namespace

struct Nvml::Symbols {
    nvmlReturn_t (*init)() = nullptr;
    nvmlReturn_t (*shutdown)() = nullptr;
    const char* (*error_string)(nvmlReturn_t) = nullptr;
    nvmlReturn_t (*get_count)(unsigned*) = nullptr;
    nvmlReturn_t (*by_index)(unsigned, nvmlDevice_t*) = nullptr;
    nvmlReturn_t (*by_uuid)(const char*, nvmlDevice_t*) = nullptr;
    nvmlReturn_t (*get_uuid)(nvmlDevice_t, char*, unsigned) = nullptr;
    nvmlReturn_t (*get_name)(nvmlDevice_t, char*, unsigned) = nullptr;
    nvmlReturn_t (*get_index)(nvmlDevice_t, unsigned*) = nullptr;
    nvmlReturn_t (*get_energy)(nvmlDevice_t, unsigned long long*) = nullptr;
    nvmlReturn_t (*get_samples)(nvmlDevice_t, int, unsigned long long, int*, unsigned*, nvmlSample_t*) = nullptr;
    nvmlReturn_t (*get_fields)(nvmlDevice_t, int, nvmlFieldValue_t*) = nullptr;
    nvmlReturn_t (*get_power)(nvmlDevice_t, unsigned*) = nullptr;
    nvmlReturn_t (*get_temperature)(nvmlDevice_t, int, unsigned*) = nullptr;
    nvmlReturn_t (*get_clock)(nvmlDevice_t, int, unsigned*) = nullptr;
    nvmlReturn_t (*get_reasons)(nvmlDevice_t, unsigned long long*) = nullptr;
};

namespace {

template <typename Function>
bool load(void* library, Function*& slot, std::initializer_list<const char*> names) {
    for (const char* name : names) {
        slot = reinterpret_cast<Function*>(dlsym(library, name));
        if (slot != nullptr) return true;
    }
    return false;
}

template <typename Function>
void require(void* library, Function*& slot, std::initializer_list<const char*> names) {
    if (!load(library, slot, names)) {
        throw NvmlError(*names.begin(), kFunctionNotFound, "the driver's library lacks this function", "");
    }
}

}  // namespace

NvmlError::NvmlError(std::string call_, nvmlReturn_t code_, std::string text_, std::string device_)
    : std::runtime_error(describe_error(call_, code_, text_, device_)),
      call(std::move(call_)),
      code(code_),
      text(std::move(text_)),
      device(std::move(device_)) {}

std::shared_ptr<Nvml> Nvml::open() {
    const char* chosen = std::getenv(kLibraryVariable);
    const char* path = chosen != nullptr && *chosen != '\0' ? chosen : kLibraryName;
    // Never closed: a call that hangs in the driver may outlive every session.
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw NvmlError("dlopen", kLibraryNotFound, std::string(path) + " not found", "");

    auto symbols = std::make_unique<Symbols>();
    require(library, symbols->init, {"nvmlInit_v2", "nvmlInit"});
    require(library, symbols->shutdown, {"nvmlShutdown"});
    require(library, symbols->get_count, {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"});
    require(library, symbols->by_index, {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"});
    require(library, symbols->by_uuid, {"nvmlDeviceGetHandleByUUID"});
    require(library, symbols->get_uuid, {"nvmlDeviceGetUUID"});
    load(library, symbols->error_string, {"nvmlErrorString"});
    load(library, symbols->get_name, {"nvmlDeviceGetName"});
    load(library, symbols->get_index, {"nvmlDeviceGetIndex"});
    load(library, symbols->get_energy, {"nvmlDeviceGetTotalEnergyConsumption"});
    load(library, symbols->get_samples, {"nvmlDeviceGetSamples"});
    load(library, symbols->get_fields, {"nvmlDeviceGetFieldValues"});
    load(library, symbols->get_power, {"nvmlDeviceGetPowerUsage"});
    load(library, symbols->get_temperature, {"nvmlDeviceGetTemperature"});
    load(library, symbols->get_clock, {"nvmlDeviceGetClockInfo"});
    load(library, symbols->get_reasons,
         {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"});

    const nvmlReturn_t code = symbols->init();
    if (code != kSuccess) {
        const char* text = symbols->error_string != nullptr ? symbols->error_string(code) : "failed";
        throw NvmlError("nvmlInit_v2", code, text, "");
    }
    return std::shared_ptr<Nvml>(new Nvml(std::move(symbols)));
}

Nvml::Nvml(std::unique_ptr<Symbols> symbols) : symbols_(std::move(symbols)) {}

Nvml::~Nvml() { symbols_->shutdown(); }

void Nvml::check(nvmlReturn_t code, const char* call, const std::string& device) const {
    if (code == kSuccess) return;
    throw NvmlError(call, code, symbols_->error_string != nullptr ? symbols_->error_string(code) : "failed", device);
}

std::vector<DeviceInfo> Nvml::devices() const {
    unsigned count = 0;
    check(symbols_->get_count(&count), "nvmlDeviceGetCount_v2");
    std::vector<DeviceInfo> found;
    for (unsigned index = 0; index < count; ++index) {
        nvmlDevice_t device = nullptr;
        check(symbols_->by_index(index, &device), "nvmlDeviceGetHandleByIndex_v2", std::to_string(index));
        found.push_back(describe(device));
    }
    return found;
}

nvmlDevice_t Nvml::device_by_uuid(const std::string& uuid) const {
    nvmlDevice_t device = nullptr;
    check(symbols_->by_uuid(uuid.c_str(), &device), "nvmlDeviceGetHandleByUUID", uuid);
    return device;
}

DeviceInfo Nvml::describe(nvmlDevice_t device) const {
    char text[kTextSize] = "";
    check(symbols_->get_uuid(device, text, kTextSize), "nvmlDeviceGetUUID");
    DeviceInfo info{text, "", 0};
    if (symbols_->get_name != nullptr && symbols_->get_name(device, text, kTextSize) == kSuccess) info.name = text;
    if (symbols_->get_index != nullptr)
        check(symbols_->get_index(device, &info.index), "nvmlDeviceGetIndex", info.uuid);
    return info;
}

nvmlReturn_t Nvml::energy_mj(nvmlDevice_t device, uint64_t* energy_mj) const {
    if (symbols_->get_energy == nullptr) return kFunctionNotFound;
    unsigned long long value = 0;
    const nvmlReturn_t code = symbols_->get_energy(device, &value);
    if (code == kSuccess) *energy_mj = value;
    return code;
}

nvmlReturn_t Nvml::power_samples(nvmlDevice_t device, uint64_t last_seen_us, std::vector<PowerSample>* out) const {
    if (symbols_->get_samples == nullptr) return kFunctionNotFound;
    int type = 0;
    unsigned count = 0;
    nvmlReturn_t code = symbols_->get_samples(device, kTotalPowerSamples, last_seen_us, &type, &count, nullptr);
    if (code != kSuccess && code != kInsufficientSize) return code;
    std::vector<nvmlSample_t> buffer(count);
    if (count == 0) return kNotFound;
    code = symbols_->get_samples(device, kTotalPowerSamples, last_seen_us, &type, &count, buffer.data());
    if (code != kSuccess) return code;
    buffer.resize(count < buffer.size() ? count : buffer.size());
    for (const nvmlSample_t& sample : buffer) {
        if (sample.timeStamp <= last_seen_us) continue;  // some drivers pad the buffer with old or zero entries
        out->push_back({static_cast<int64_t>(sample.timeStamp), to_integer(type, sample.sampleValue)});
    }
    return kSuccess;
}

nvmlReturn_t Nvml::power_fields(nvmlDevice_t device, std::optional<int64_t>* instant_mw,
                                std::optional<int64_t>* average_mw) const {
    if (symbols_->get_fields == nullptr) return kFunctionNotFound;
    nvmlFieldValue_t fields[2] = {};
    fields[0].fieldId = kFieldPowerInstant;
    fields[1].fieldId = kFieldPowerAverage;
    const nvmlReturn_t code = symbols_->get_fields(device, 2, fields);
    if (code != kSuccess) return code;
    if (fields[0].nvmlReturn == kSuccess) *instant_mw = to_integer(fields[0].valueType, fields[0].value);
    if (fields[1].nvmlReturn == kSuccess) *average_mw = to_integer(fields[1].valueType, fields[1].value);
    return *instant_mw || *average_mw ? kSuccess : fields[0].nvmlReturn;
}

namespace {

template <typename Function, typename... Arguments>
nvmlReturn_t read_unsigned(Function function, int64_t* out, Arguments... arguments) {
    if (function == nullptr) return kFunctionNotFound;
    unsigned value = 0;
    const nvmlReturn_t code = function(arguments..., &value);
    if (code == kSuccess) *out = value;
    return code;
}

}  // namespace

nvmlReturn_t Nvml::power_usage_mw(nvmlDevice_t device, int64_t* power_mw) const {
    return read_unsigned(symbols_->get_power, power_mw, device);
}

nvmlReturn_t Nvml::temperature_c(nvmlDevice_t device, int64_t* temperature_c) const {
    return read_unsigned(symbols_->get_temperature, temperature_c, device, kTemperatureGpu);
}

nvmlReturn_t Nvml::sm_clock_mhz(nvmlDevice_t device, int64_t* clock_mhz) const {
    return read_unsigned(symbols_->get_clock, clock_mhz, device, kClockSm);
}

nvmlReturn_t Nvml::clock_event_reasons(nvmlDevice_t device, int64_t* reasons) const {
    if (symbols_->get_reasons == nullptr) return kFunctionNotFound;
    unsigned long long value = 0;
    const nvmlReturn_t code = symbols_->get_reasons(device, &value);
    if (code == kSuccess) *reasons = static_cast<int64_t>(value);
    return code;
}

}  // namespace pybench
