#include "nvml_api.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <utility>

// Older names of calls for drivers without the newer.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace pybench {

namespace {

constexpr char kLibraryName[] = "libnvidia-ml.so.1";
constexpr char kLibraryVariable[] = "PYBENCH_NVML_LIBRARY";
constexpr unsigned kTextSize = NVML_DEVICE_UUID_V2_BUFFER_SIZE;  // the longest of UUID, name and driver version

// NVML names the type of a value beside it; power comes as an unsigned integer on every driver seen, double allowed.
int64_t to_integer(nvmlValueType_t type, const nvmlValue_t& value) {
    switch (type) {
        case NVML_VALUE_TYPE_DOUBLE:
            return static_cast<int64_t>(value.dVal);
        case NVML_VALUE_TYPE_UNSIGNED_INT:
            return value.uiVal;
        case NVML_VALUE_TYPE_SIGNED_INT:
            return value.siVal;
        case NVML_VALUE_TYPE_UNSIGNED_SHORT:
            return value.usVal;
        default:
            return value.sllVal;
    }
}

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
        throw NvmlError(*names.begin(), NVML_ERROR_FUNCTION_NOT_FOUND, "the driver's library lacks this function", "");
    }
}

// A call needed to open a GPU: retried at once after a transient failure.
template <typename Call>
nvmlReturn_t persist(Call call) {
    constexpr int kTries = 4;
    nvmlReturn_t code = call();
    for (int tries = 1; tries < kTries && (code == NVML_ERROR_UNKNOWN || code == NVML_ERROR_TIMEOUT); ++tries) {
        code = call();
    }
    return code;
}

template <typename Value, typename Out, typename Function, typename... Arguments>
nvmlReturn_t read(Function function, Out* out, Arguments... arguments) {
    if (function == nullptr) return NVML_ERROR_FUNCTION_NOT_FOUND;
    Value value{};
    const nvmlReturn_t code = function(arguments..., &value);
    if (code == NVML_SUCCESS) *out = static_cast<Out>(value);
    return code;
}

}  // namespace

struct Nvml::Symbols {
    decltype(nvmlInit_v2)* init = nullptr;
    decltype(nvmlShutdown)* shutdown = nullptr;
    decltype(nvmlErrorString)* error_string = nullptr;
    decltype(nvmlSystemGetDriverVersion)* get_driver = nullptr;
    decltype(nvmlDeviceGetHandleByUUID)* by_uuid = nullptr;
    decltype(nvmlDeviceGetUUID)* get_uuid = nullptr;
    decltype(nvmlDeviceGetName)* get_name = nullptr;
    decltype(nvmlDeviceGetIndex)* get_index = nullptr;
    decltype(nvmlDeviceGetTotalEnergyConsumption)* get_energy = nullptr;
    decltype(nvmlDeviceGetSamples)* get_samples = nullptr;
    decltype(nvmlDeviceGetFieldValues)* get_fields = nullptr;
    decltype(nvmlDeviceGetPowerUsage)* get_power = nullptr;
    decltype(nvmlDeviceGetTemperature)* get_temperature = nullptr;
    decltype(nvmlDeviceGetClockInfo)* get_clock = nullptr;
    decltype(nvmlDeviceGetUtilizationRates)* get_utilization = nullptr;
    decltype(nvmlDeviceGetCurrentClocksEventReasons)* get_reasons = nullptr;
    decltype(nvmlDeviceGetMigMode)* get_mig = nullptr;
    decltype(nvmlDeviceGetMultiGpuBoard)* get_shared_board = nullptr;

    explicit Symbols(void* library);

    std::string text(nvmlReturn_t code) const { return error_string != nullptr ? error_string(code) : "failed"; }
};

// Newer names first. Only functions that every session needs are required.
Nvml::Symbols::Symbols(void* library) {
    require(library, init, {"nvmlInit_v2", "nvmlInit"});
    require(library, by_uuid, {"nvmlDeviceGetHandleByUUID"});
    require(library, get_uuid, {"nvmlDeviceGetUUID"});
    load(library, shutdown, {"nvmlShutdown"});
    load(library, error_string, {"nvmlErrorString"});
    load(library, get_driver, {"nvmlSystemGetDriverVersion"});
    load(library, get_name, {"nvmlDeviceGetName"});
    load(library, get_index, {"nvmlDeviceGetIndex"});
    load(library, get_energy, {"nvmlDeviceGetTotalEnergyConsumption"});
    load(library, get_samples, {"nvmlDeviceGetSamples"});
    load(library, get_fields, {"nvmlDeviceGetFieldValues"});
    load(library, get_power, {"nvmlDeviceGetPowerUsage"});
    load(library, get_temperature, {"nvmlDeviceGetTemperature"});
    load(library, get_clock, {"nvmlDeviceGetClockInfo"});
    load(library, get_utilization, {"nvmlDeviceGetUtilizationRates"});
    load(library, get_reasons, {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"});
    load(library, get_mig, {"nvmlDeviceGetMigMode"});
    load(library, get_shared_board, {"nvmlDeviceGetMultiGpuBoard"});
}

std::shared_ptr<Nvml> Nvml::open() {
    const char* chosen = std::getenv(kLibraryVariable);
    const char* path = chosen != nullptr && *chosen != '\0' ? chosen : kLibraryName;
    // Never closed: a call that hangs in the driver may outlive every session.
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
        throw NvmlError("dlopen", NVML_ERROR_LIBRARY_NOT_FOUND, std::string(path) + " not found", "");
    auto symbols = std::make_unique<Symbols>(library);
    const nvmlReturn_t code = persist([&] { return symbols->init(); });
    if (code != NVML_SUCCESS) throw NvmlError("nvmlInit_v2", code, symbols->text(code), "");
    return std::shared_ptr<Nvml>(new Nvml(std::move(symbols)));
}

Nvml::Nvml(std::unique_ptr<Symbols> symbols) : symbols_(std::move(symbols)) {}

Nvml::~Nvml() {
    if (symbols_->shutdown != nullptr) symbols_->shutdown();
}

void Nvml::check(nvmlReturn_t code, const char* call, const std::string& device) const {
    if (code != NVML_SUCCESS) throw NvmlError(call, code, symbols_->text(code), device);
}

nvmlDevice_t Nvml::gpu_by_uuid(const std::string& uuid) const {
    nvmlDevice_t gpu = nullptr;
    check(persist([&] { return symbols_->by_uuid(uuid.c_str(), &gpu); }), "nvmlDeviceGetHandleByUUID", uuid);
    return gpu;
}

GpuInfo Nvml::describe(nvmlDevice_t gpu) const {
    char text[kTextSize] = "";
    check(persist([&] { return symbols_->get_uuid(gpu, text, kTextSize); }), "nvmlDeviceGetUUID");
    GpuInfo info{text, "", 0};
    if (symbols_->get_name != nullptr && symbols_->get_name(gpu, text, kTextSize) == NVML_SUCCESS) info.name = text;
    if (symbols_->get_index != nullptr) {
        check(persist([&] { return symbols_->get_index(gpu, &info.index); }), "nvmlDeviceGetIndex", info.uuid);
    }
    return info;
}

std::string Nvml::driver_version() const {
    char text[kTextSize] = "";
    if (symbols_->get_driver == nullptr || symbols_->get_driver(text, kTextSize) != NVML_SUCCESS) return "";
    return text;
}

nvmlReturn_t Nvml::energy_mj(nvmlDevice_t gpu, uint64_t* energy_mj) const {
    return read<unsigned long long>(symbols_->get_energy, energy_mj, gpu);
}

nvmlReturn_t Nvml::power_samples(nvmlDevice_t gpu, uint64_t last_seen_us, unsigned* size,
                                 std::vector<PowerSample>* out) const {
    if (symbols_->get_samples == nullptr) return NVML_ERROR_FUNCTION_NOT_FOUND;
    nvmlValueType_t type{};
    const auto call = [&](unsigned* count, nvmlSample_t* samples) {
        return symbols_->get_samples(gpu, NVML_TOTAL_POWER_SAMPLES, last_seen_us, &type, count, samples);
    };
    nvmlReturn_t code = *size == 0 ? call(size, nullptr) : NVML_SUCCESS;
    if (code == NVML_ERROR_NOT_FOUND || (code == NVML_SUCCESS && *size == 0)) return NVML_SUCCESS;  // none yet
    if (code != NVML_SUCCESS && code != NVML_ERROR_INSUFFICIENT_SIZE) return code;
    std::vector<nvmlSample_t> buffer(*size);
    unsigned count = *size;
    code = call(&count, buffer.data());
    if (code == NVML_ERROR_NOT_FOUND) return NVML_SUCCESS;  // nothing new
    if (code == NVML_ERROR_INSUFFICIENT_SIZE) *size = 0;
    if (code != NVML_SUCCESS) return code;
    buffer.resize(std::min<size_t>(count, buffer.size()));
    for (const nvmlSample_t& sample : buffer) {
        if (sample.timeStamp <= last_seen_us) continue;  // some drivers pad the buffer with old or zero entries
        out->push_back({static_cast<int64_t>(sample.timeStamp), to_integer(type, sample.sampleValue)});
    }
    return NVML_SUCCESS;
}

nvmlReturn_t Nvml::power_fields(nvmlDevice_t gpu, std::vector<PowerField>* fields) const {
    if (symbols_->get_fields == nullptr) return NVML_ERROR_FUNCTION_NOT_FOUND;
    std::vector<nvmlFieldValue_t> values(fields->size());
    for (size_t i = 0; i < values.size(); ++i) {
        values[i].fieldId = (*fields)[i].field_id;
        values[i].scopeId = (*fields)[i].scope;
    }
    const nvmlReturn_t code = symbols_->get_fields(gpu, static_cast<int>(values.size()), values.data());
    if (code != NVML_SUCCESS) return code;
    for (size_t i = 0; i < values.size(); ++i) {
        (*fields)[i].code = values[i].nvmlReturn;
        (*fields)[i].power_mw = to_integer(values[i].valueType, values[i].value);
    }
    return NVML_SUCCESS;
}

nvmlReturn_t Nvml::power_usage_mw(nvmlDevice_t gpu, int64_t* power_mw) const {
    return read<unsigned>(symbols_->get_power, power_mw, gpu);
}

nvmlReturn_t Nvml::temperature_c(nvmlDevice_t gpu, int64_t* temperature_c) const {
    return read<unsigned>(symbols_->get_temperature, temperature_c, gpu, NVML_TEMPERATURE_GPU);
}

nvmlReturn_t Nvml::clock_mhz(nvmlDevice_t gpu, nvmlClockType_t clock, int64_t* clock_mhz) const {
    return read<unsigned>(symbols_->get_clock, clock_mhz, gpu, clock);
}

nvmlReturn_t Nvml::gpu_utilization_percent(nvmlDevice_t gpu, int64_t* percent) const {
    if (symbols_->get_utilization == nullptr) return NVML_ERROR_FUNCTION_NOT_FOUND;
    nvmlUtilization_t rates{};
    const nvmlReturn_t code = symbols_->get_utilization(gpu, &rates);
    if (code == NVML_SUCCESS) *percent = rates.gpu;
    return code;
}

nvmlReturn_t Nvml::clock_event_reasons(nvmlDevice_t gpu, int64_t* reasons) const {
    return read<unsigned long long>(symbols_->get_reasons, reasons, gpu);
}

nvmlReturn_t Nvml::mig_enabled(nvmlDevice_t gpu, int64_t* enabled) const {
    if (symbols_->get_mig == nullptr) return NVML_ERROR_FUNCTION_NOT_FOUND;
    unsigned current = 0, pending = 0;
    const nvmlReturn_t code = symbols_->get_mig(gpu, &current, &pending);
    if (code == NVML_SUCCESS) *enabled = current == NVML_DEVICE_MIG_ENABLE ? 1 : 0;
    return code;
}

nvmlReturn_t Nvml::on_shared_board(nvmlDevice_t gpu, int64_t* shared) const {
    return read<unsigned>(symbols_->get_shared_board, shared, gpu);
}

}  // namespace pybench
