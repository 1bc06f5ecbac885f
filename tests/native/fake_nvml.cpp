// A stand-in for libnvidia-ml.so.1 whose sensors have a real board's physics, and whose joules are known in closed
// form.
//
// Read from the environment at nvmlInit:
//   FAKE_NVML_DEVICES  number of GPUs, 0 to 16, default 2
//   FAKE_NVML_LOAD     see fake_load.h, default constant:400; several, parted by ";", go to the GPUs in turn
//   FAKE_NVML_SENSOR   ideal (default) or h200, see fake_sensor.h
//   FAKE_NVML_COUNTER_LAG_MS, FAKE_NVML_ZERO_EVERY, FAKE_NVML_COUNTER_RESET_MS  change one thing of it
//   FAKE_NVML_FAIL     rules, see fake_settings.h: the value is a return code
//   FAKE_NVML_FIELD_FAIL  FIELD/SCOPE:<code>: the return code of one field alone
//   FAKE_NVML_HANG     rules: the value is ms
//   FAKE_NVML_LATENCY  rules: the value is µs, or h200 for what calls cost there
//   FAKE_NVML_BUSY     1: latency keeps a core busy instead of sleeping
//   FAKE_NVML_GLOBAL_LOCK  1: one call at a time
//   FAKE_NVML_MIG, FAKE_NVML_SHARED_BOARD, FAKE_NVML_MODULE  1: what the GPUs say they are
//   FAKE_NVML_DRIVER   version, default 580.00.fake
//   FAKE_NVML_NAME     default NVIDIA H200; several, parted by ";", go to the GPUs in turn
//   FAKE_NVML_CAPABILITY, FAKE_NVML_MEMORY_MIB, FAKE_NVML_LIMIT_W, FAKE_NVML_DEFAULT_LIMIT_W  of the board, in
//                      turn too; default 9.0, 143051, 650 and 700
//   FAKE_NVML_COMPUTE_MODE      by number, in turn too; default 0, shared
//   FAKE_NVML_ECC_CORRECTED, FAKE_NVML_ECC_UNCORRECTED, FAKE_NVML_REMAPPED_ROWS  counts, read at each call
//   FAKE_NVML_CLOCK_EVENT_REASONS  the bit mask, read at each call; this and ECC errors may be several, parted by ";"
//   FAKE_NVML_PAIR_LINKS        NVLinks to the other GPU of a pair, of GPUs without a switch
//   FAKE_NVML_REMAP_PENDING, FAKE_NVML_REMAP_FAILED  1: so it is
//   FAKE_NVML_PCIE_WIDTH, FAKE_NVML_PCIE_GENERATION  of the link now; 16 and 5 are its best
//   FAKE_NVML_PROCESSES  PID:BYTES, read at each call; several are parted by ","; PID:BYTES:DEVICE is on one GPU only
//   FAKE_NVML_NVLINK_SENT_KIB  data sent over all NVLinks, read at each call; several, parted by ";"; -1: not counted
//   FAKE_NVML_COUNTS   a file to count answered calls in; it outlives a process that is killed
#include <dlfcn.h>
#include <fcntl.h>
#define NVML_NO_UNVERSIONED_FUNC_DEFS  // both nvmlInit and nvmlInit_v2 by their own names
#include <nvml.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "fake_load.h"
#include "fake_sensor.h"
#include "fake_settings.h"

using namespace fake;

namespace {

constexpr int kMaxDevices = 16, kMaxFunctions = 64;

int64_t read_clock(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

int64_t now_ns() { return read_clock(CLOCK_MONOTONIC); }

const int64_t epoch_ns = now_ns();
const int64_t first_offset_ns = read_clock(CLOCK_REALTIME) - now_ns();

// Of wall_clock.cpp, where it is loaded.
const auto set_by_ns = reinterpret_cast<int64_t (*)(int64_t)>(dlsym(RTLD_DEFAULT, "wall_clock_set_by_ns"));

// CLOCK_REALTIME minus CLOCK_MONOTONIC at a time.
int64_t realtime_offset_ns(int64_t t_ns) { return first_offset_ns + (set_by_ns == nullptr ? 0 : set_by_ns(t_ns)); }

double seconds(int64_t t_ns) { return static_cast<double>(t_ns - epoch_ns) / 1e9; }
double now_s() { return seconds(now_ns()); }

// Counts of one function: calls made since nvmlInit, and calls that ever came back, about each device and about none
// (last).
struct Counts {
    char function[48];
    std::atomic<uint64_t> made[kMaxDevices + 1], answered[kMaxDevices + 1];
};

Counts* map_counts() {
    const std::string path = variable("COUNTS", "");
    const size_t size = sizeof(Counts) * kMaxFunctions;
    const int file = path.empty() ? -1 : open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file >= 0 && ftruncate(file, static_cast<off_t>(size)) != 0) std::abort();
    const int kind = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    return static_cast<Counts*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, kind, file, 0));
}

Counts* const all_counts = map_counts();

struct Config {
    int devices = static_cast<int>(number("DEVICES", 2));
    std::vector<Load> loads;
    Sensor sensor{variable("SENSOR", "ideal")};
    std::vector<Rule> fail = rules("FAIL"), field_fail = rules("FIELD_FAIL"), hang = rules("HANG"), latency;
    bool busy = number("BUSY", 0) != 0, global_lock = number("GLOBAL_LOCK", 0) != 0;
    bool mig = number("MIG", 0) != 0, shared_board = number("SHARED_BOARD", 0) != 0, module = number("MODULE", 0) != 0;
    std::string driver = variable("DRIVER", "580.00.fake"), name = variable("NAME", "NVIDIA H200");
    int64_t init_ns = now_ns();
    mutable std::atomic<uint64_t> num_calls{0};
    // Held during each call where the driver allows one at a time; a call that outlives its driver holds up no other's.
    mutable std::mutex alone;

    Config() {
        for (const std::string& load : split(variable("LOAD", "constant:400"), ';')) loads.emplace_back(load);
        sensor.counter_lag_s = static_cast<double>(number("COUNTER_LAG_MS", 0)) * kMs;
        sensor.zero_every = number("ZERO_EVERY", 0);
        if (const int64_t reset_ms = number("COUNTER_RESET_MS", -1); reset_ms >= 0) {
            sensor.reset_s = seconds(init_ns + reset_ms * 1'000'000);
        }
        if (variable("LATENCY", "") == "h200") {
            latency = {Rule("nvmlDeviceGetTotalEnergyConsumption:2300"), Rule("nvmlDeviceGetSamples:280"),
                       Rule("nvmlDeviceGetPowerUsage:3500@call=1-1")};
        } else {
            latency = rules("LATENCY");
        }
    }

    const Load& load(int device) const { return loads[static_cast<size_t>(device) % loads.size()]; }
};

// Never destroyed: a call that hung may outlive main.
struct State {
    std::mutex mutex;  // guards what follows: init and shutdown may meet a call that hung
    std::shared_ptr<const Config> config = std::make_shared<Config>();
    uint64_t config_init = 0;  // the number of the nvmlInit that read it
    int sessions = 0;

    State() {
        // The child of a fork gets no thread that would unlock these.
        pthread_atfork(nullptr, nullptr, [] {
            new (&state().mutex) std::mutex;
            new (&state().config->alone) std::mutex;
        });
    }

    static State& state() {
        static State& one = *new State;
        return one;
    }
};

std::shared_ptr<const Config> config() {
    State& state = State::state();
    const std::lock_guard<std::mutex> lock(state.mutex);
    return state.config;
}

Counts& counts_of(const char* function) {
    State& state = State::state();
    const std::lock_guard<std::mutex> lock(state.mutex);
    for (int i = 0; i < kMaxFunctions - 1; ++i) {
        Counts& counts = all_counts[i];
        if (counts.function[0] == '\0') std::strncpy(counts.function, function, sizeof counts.function - 1);
        if (std::strcmp(counts.function, function) == 0) return counts;
    }
    return all_counts[kMaxFunctions - 1];
}

char handles[kMaxDevices];  // a handle is the address of its slot

nvmlDevice_t handle_of(int index) { return reinterpret_cast<nvmlDevice_t>(&handles[index]); }
int index_of(nvmlDevice_t device) { return static_cast<int>(reinterpret_cast<char*>(device) - handles); }

void pass_at_once(int64_t length_ns, bool busy) {
    const int64_t end_ns = now_ns() + length_ns;
    if (busy) {
        while (now_ns() < end_ns) {
        }
        return;
    }
    const timespec end{end_ns / 1'000'000'000, end_ns % 1'000'000'000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, nullptr) != 0) {
    }
}

// In parts, of which a standstill of the machine passes one: the rest is yet to be done then.
void pass(int64_t length_ns, bool busy) {
    constexpr int64_t kPart = 20'000'000;
    for (; length_ns > 0; length_ns -= kPart) pass_at_once(std::min(length_ns, kPart), busy);
}

// Of a thread whose call hung until the driver was another: a test's that is over. It is neither counted nor answered.
thread_local bool outlived = false;
std::atomic<uint64_t> num_outlived{0};

nvmlReturn_t outlive() {
    outlived = true;
    ++num_outlived;
    return NVML_ERROR_DRIVER_NOT_LOADED;
}

// One call: takes its time, fails as told, else is answered.
template <typename Answer>
nvmlReturn_t call(const char* function, int device, Answer answer) {
    if (outlived) return NVML_ERROR_DRIVER_NOT_LOADED;
    const std::shared_ptr<const Config> told = config();
    const bool known = device == kNoDevice || (device >= 0 && device < told->devices);
    if (!known) return NVML_ERROR_INVALID_ARGUMENT;
    Counts& counts = counts_of(function);
    const int slot = device == kNoDevice ? kMaxDevices : device;
    const uint64_t number = ++counts.made[slot], any_number = ++told->num_calls;
    const int64_t since_ms = (now_ns() - told->init_ns) / 1'000'000;
    const auto first = [&](const std::vector<Rule>& rules) -> const Rule* {
        for (const Rule& rule : rules) {
            if (rule.applies(function, device, since_ms, number, any_number)) return &rule;
        }
        return nullptr;
    };
    std::unique_lock<std::mutex> alone(told->alone, std::defer_lock);
    if (told->global_lock) alone.lock();
    if (const Rule* rule = first(told->hang)) {
        pass(rule->value * 1'000'000, false);
        if (config()->driver != told->driver) return outlive();
    }
    if (const Rule* rule = first(told->latency)) pass(rule->value * 1'000, told->busy);
    {
        const std::lock_guard<std::mutex> lock(State::state().mutex);
        if (State::state().sessions == 0) return NVML_ERROR_UNINITIALIZED;
    }
    const Rule* rule = first(told->fail);
    const nvmlReturn_t code = rule != nullptr ? static_cast<nvmlReturn_t>(rule->value) : answer(*told);
    if (code == NVML_SUCCESS) ++counts.answered[slot];
    return code;
}

template <typename Value>
nvmlReturn_t tell(const char* function, nvmlDevice_t device, Value* out, Value value) {
    return call(function, index_of(device), [&](const Config&) {
        *out = value;
        return NVML_SUCCESS;
    });
}

unsigned to_mw(double power_w) { return static_cast<unsigned>(std::lround(power_w * 1e3)); }

nvmlReturn_t write_text(char* out, unsigned size, const std::string& text) {
    if (text.size() >= size) return NVML_ERROR_INSUFFICIENT_SIZE;
    std::memcpy(out, text.c_str(), text.size() + 1);
    return NVML_SUCCESS;
}

std::string uuid_of(int index) {
    // FAKE_NVML_HOST numbers the machine: GPUs of two machines are never the same.
    const char* host = std::getenv("FAKE_NVML_HOST");
    char text[48];
    std::snprintf(text, sizeof text, "GPU-%04d%04d-fake-4000-8000-%012d", host ? std::atoi(host) : 0, index, index);
    return text;
}

unsigned limit_mw_of(nvmlDevice_t device, const char* name, int64_t fallback_w) {
    return static_cast<unsigned>(number_of(index_of(device), name, fallback_w) * 1000);
}

nvmlReturn_t field(const Config& told, int device, nvmlFieldValue_t* out) {
    const Load& load = told.load(device);
    const double newest_w = told.sensor.newest_w(load, now_s(), device);
    const double average_w = told.sensor.average_w(load, now_s(), device);
    const std::string name = std::to_string(out->fieldId) + "/" + std::to_string(out->scopeId);
    for (const Rule& rule : told.field_fail) {
        if (rule.applies(name, device, 0, 0, 0)) return static_cast<nvmlReturn_t>(rule.value);
    }
    out->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
    const bool gpu = out->scopeId == NVML_POWER_SCOPE_GPU, memory = out->scopeId == NVML_POWER_SCOPE_MEMORY;
    if (out->scopeId == NVML_POWER_SCOPE_MODULE && !told.module) return NVML_ERROR_NOT_SUPPORTED;
    constexpr double kMemoryIdle_w = 40, kMemoryFraction = 0.13;
    if (out->fieldId == NVML_FI_DEV_POWER_INSTANT && !memory) {
        out->value.uiVal = to_mw(newest_w);
    } else if (out->fieldId == NVML_FI_DEV_POWER_AVERAGE && !memory) {
        out->value.uiVal = to_mw(average_w);
    } else if (out->fieldId == NVML_FI_DEV_POWER_AVERAGE) {
        out->value.uiVal = to_mw(kMemoryIdle_w + kMemoryFraction * average_w);
    } else if (out->fieldId == NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION && gpu) {
        out->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
        const double counted_j = Sensor::kCountedBefore_j + told.sensor.counter_j(load, now_s(), device);
        out->value.ullVal = static_cast<unsigned long long>(std::llround(counted_j * 1e3));
    } else if (out->fieldId == NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX && out->scopeId == UINT_MAX &&
               fake::number_of(device, "NVLINK_SENT_KIB", -1) >= 0) {
        out->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
        out->value.ullVal = static_cast<unsigned long long>(fake::number_of(device, "NVLINK_SENT_KIB", -1));
    } else {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    return NVML_SUCCESS;
}

}  // namespace

// NOLINTBEGIN: names and types are NVML's
extern "C" {

// When the load began (CLOCK_MONOTONIC).
int64_t fake_nvml_epoch_ns() { return epoch_ns; }

// The truth: joules since then.
double fake_nvml_energy_j(int device, int64_t t_ns) { return config()->load(device).energy_j(seconds(t_ns)); }

// Calls that came back with an answer; device -1 for those about none.
uint64_t fake_nvml_answered(const char* function, int device) {
    return counts_of(function).answered[device == kNoDevice ? kMaxDevices : device];
}

// Threads whose call came back when the driver was another.
uint64_t fake_nvml_outlived() { return num_outlived; }

// How many nvmlInit have not been shut down.
int fake_nvml_sessions() {
    const std::lock_guard<std::mutex> lock(State::state().mutex);
    return State::state().sessions;
}

nvmlReturn_t nvmlInitWithFlags(unsigned) {
    static std::atomic<uint64_t> num_inits{0};
    State& state = State::state();
    const uint64_t number = ++num_inits;
    auto fresh = std::make_shared<const Config>();
    for (const Rule& rule : fresh->hang) {
        if (rule.function == "nvmlInit") pass(rule.value * 1'000'000, false);
    }
    for (const Rule& rule : fresh->fail) {
        if (rule.function == "nvmlInit" && rule.is_due(number)) return static_cast<nvmlReturn_t>(rule.value);
    }
    const std::lock_guard<std::mutex> lock(state.mutex);
    if (number > state.config_init) {
        for (Counts* counts = all_counts; counts < all_counts + kMaxFunctions; ++counts) {
            for (std::atomic<uint64_t>& made : counts->made) made = 0;
        }
        state.config = std::move(fresh);
        state.config_init = number;
    } else if (fresh->driver != state.config->driver) {
        return outlive();
    }
    ++state.sessions;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlInit_v2() { return nvmlInitWithFlags(0); }
nvmlReturn_t nvmlInit() { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown() {
    State& state = State::state();
    for (const Rule& rule : config()->hang) {
        if (rule.function == "nvmlShutdown") pass(rule.value * 1'000'000, false);
    }
    const std::lock_guard<std::mutex> lock(state.mutex);
    if (state.sessions == 0) return NVML_ERROR_UNINITIALIZED;
    --state.sessions;
    return NVML_SUCCESS;
}

const char* nvmlErrorString(nvmlReturn_t code) {
    switch (code) {
        case NVML_SUCCESS:
            return "Success";
        case NVML_ERROR_UNINITIALIZED:
            return "Uninitialized";
        case NVML_ERROR_NOT_SUPPORTED:
            return "Not Supported";
        case NVML_ERROR_NO_PERMISSION:
            return "Insufficient Permissions";
        case NVML_ERROR_NOT_FOUND:
            return "Not Found";
        case NVML_ERROR_DRIVER_NOT_LOADED:
            return "Driver Not Loaded";
        case NVML_ERROR_GPU_IS_LOST:
            return "GPU is lost";
        default:
            return "Unknown Error";
    }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char* out, unsigned size) {
    return call("nvmlSystemGetDriverVersion", kNoDevice,
                [&](const Config& told) { return write_text(out, size, told.driver); });
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) {
    return call("nvmlSystemGetCudaDriverVersion_v2", kNoDevice, [&](const Config&) {
        *version = 13000;
        return NVML_SUCCESS;
    });
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
    return call("nvmlDeviceGetCount_v2", kNoDevice, [&](const Config& told) {
        *count = static_cast<unsigned>(told.devices);
        return NVML_SUCCESS;
    });
}

nvmlReturn_t nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
    return call("nvmlDeviceGetHandleByIndex_v2", static_cast<int>(index), [&](const Config&) {
        *device = handle_of(static_cast<int>(index));
        return NVML_SUCCESS;
    });
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t* device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
    for (int index = 0; index < config()->devices; ++index) {
        if (uuid_of(index) != uuid) continue;
        return call("nvmlDeviceGetHandleByUUID", index, [&](const Config&) {
            *device = handle_of(index);
            return NVML_SUCCESS;
        });
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* out, unsigned size) {
    return call("nvmlDeviceGetUUID", index_of(device),
                [&](const Config&) { return write_text(out, size, uuid_of(index_of(device))); });
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* out, unsigned size) {
    return call("nvmlDeviceGetName", index_of(device),
                [&](const Config& told) { return write_text(out, size, text_of(index_of(device), told.name)); });
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned* index) {
    return tell("nvmlDeviceGetIndex", device, index, static_cast<unsigned>(index_of(device)));
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long* energy_mj) {
    const int index = index_of(device);
    return call("nvmlDeviceGetTotalEnergyConsumption", index, [&](const Config& told) {
        const double since_j = told.sensor.counter_j(told.load(index), now_s(), index);
        *energy_mj = static_cast<unsigned long long>(std::llround((Sensor::kCountedBefore_j + since_j) * 1e3));
        return NVML_SUCCESS;
    });
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned* power_mw) {
    const int index = index_of(device);
    return call("nvmlDeviceGetPowerUsage", index, [&](const Config& told) {
        *power_mw = to_mw(told.sensor.average_w(told.load(index), now_s(), index));
        return NVML_SUCCESS;
    });
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t, unsigned* temperature_c) {
    return tell("nvmlDeviceGetTemperature", device, temperature_c, 55U);
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t kind, unsigned* clock_mhz) {
    return tell("nvmlDeviceGetClockInfo", device, clock_mhz, kind == NVML_CLOCK_SM ? 1980U : 3201U);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t kind, unsigned* clock_mhz) {
    return tell("nvmlDeviceGetMaxClockInfo", device, clock_mhz, kind == NVML_CLOCK_SM ? 1980U : 3201U);
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* rates) {
    return tell("nvmlDeviceGetUtilizationRates", device, rates, nvmlUtilization_t{97, 41});
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long* reasons) {
    const auto told = static_cast<unsigned long long>(number_of(index_of(device), "CLOCK_EVENT_REASONS", 0));
    return tell("nvmlDeviceGetCurrentClocksEventReasons", device, reasons, told);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long* reasons) {
    return nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}

nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t kind, unsigned long long last_seen_us,
                                  nvmlValueType_t* value_type, unsigned* count, nvmlSample_t* samples) {
    const int index = index_of(device);
    if (kind != NVML_TOTAL_POWER_SAMPLES) return NVML_ERROR_NOT_SUPPORTED;
    *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    if (samples == nullptr) {
        *count = kNumSamples;
        return NVML_SUCCESS;
    }
    return call("nvmlDeviceGetSamples", index, [&](const Config& told) {
        unsigned written = 0;
        for (const Sample& sample : told.sensor.samples(told.load(index), now_s(), index)) {
            const int64_t t_ns = std::llround(sample.t_s * 1e9) + epoch_ns;
            const int64_t stamp_ns = t_ns + realtime_offset_ns(t_ns);
            const auto stamp_us = static_cast<unsigned long long>(stamp_ns / 1000);
            if (stamp_us <= last_seen_us || written == *count) continue;
            samples[written].timeStamp = stamp_us;
            samples[written++].sampleValue.uiVal = to_mw(sample.power_w);
        }
        *count = written;
        return written == 0 ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS;
    });
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t* values) {
    const int index = index_of(device);
    return call("nvmlDeviceGetFieldValues", index, [&](const Config& told) {
        for (nvmlFieldValue_t* value = values; value < values + count; ++value) {
            value->nvmlReturn = field(told, index, value);
        }
        return NVML_SUCCESS;
    });
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
    constexpr unsigned long long used = 600'000'000;
    const auto total = static_cast<unsigned long long>(number_of(index_of(device), "MEMORY_MIB", 143'051)) << 20;
    return tell("nvmlDeviceGetMemoryInfo", device, memory, nvmlMemory_t{total, total - used, used});
}

// As the driver: the size alone is no success where there is any process.
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_t* out) {
    return call("nvmlDeviceGetComputeRunningProcesses_v3", index_of(device), [&](const Config&) {
        unsigned found = 0;
        for (const std::string& text : split(variable("PROCESSES", ""), ',')) {
            const std::vector<std::string> parts = split(text, ':');
            if (parts.size() > 2 && std::stoi(parts[2]) != index_of(device)) continue;
            if (out != nullptr && found < *count) {
                out[found] = nvmlProcessInfo_t{};
                out[found].pid = static_cast<unsigned>(std::stoul(parts.at(0)));
                out[found].usedGpuMemory = std::stoull(parts.at(1));
            }
            ++found;
        }
        const bool fits = found <= (out == nullptr ? 0 : *count);
        *count = found;
        return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
    });
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* out) {
    nvmlPciInfo_t pci{};
    std::snprintf(pci.busId, sizeof pci.busId, "00000000:%02X:00.0", 0x19 + index_of(device));
    return tell("nvmlDeviceGetPciInfo_v3", device, out, pci);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major, int* minor) {
    const std::vector<std::string> told = split(text_of(index_of(device), variable("CAPABILITY", "9.0")), '.');
    *minor = std::stoi(told.at(1));
    return tell("nvmlDeviceGetCudaComputeCapability", device, major, std::stoi(told.at(0)));
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t* architecture) {
    return tell("nvmlDeviceGetArchitecture", device, architecture, nvmlDeviceArchitecture_t{NVML_DEVICE_ARCH_HOPPER});
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned* limit_mw) {
    return tell("nvmlDeviceGetEnforcedPowerLimit", device, limit_mw, limit_mw_of(device, "LIMIT_W", 650));
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned* limit_mw) {
    return tell("nvmlDeviceGetPowerManagementLimit", device, limit_mw, limit_mw_of(device, "LIMIT_W", 650));
}

nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned* limit_mw) {
    return tell("nvmlDeviceGetPowerManagementDefaultLimit", device, limit_mw,
                limit_mw_of(device, "DEFAULT_LIMIT_W", 700));
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned* lowest_mw,
                                                          unsigned* highest_mw) {
    *highest_mw = 700'000U;
    return tell("nvmlDeviceGetPowerManagementLimitConstraints", device, lowest_mw, 200'000U);
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t* current, nvmlEnableState_t* pending) {
    *pending = NVML_FEATURE_ENABLED;
    return tell("nvmlDeviceGetEccMode", device, current, NVML_FEATURE_ENABLED);
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned* current, unsigned* pending) {
    *pending = 0;
    return tell("nvmlDeviceGetMigMode", device, current, config()->mig ? 1U : 0U);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t* mode) {
    const auto told = static_cast<nvmlComputeMode_t>(number_of(index_of(device), "COMPUTE_MODE", 0));
    return tell("nvmlDeviceGetComputeMode", device, mode, told);
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t* info) {
    nvmlGpuFabricInfo_t told{};
    told.state = static_cast<nvmlGpuFabricState_t>(number_of(index_of(device), "FABRIC", 0));
    return tell("nvmlDeviceGetGpuFabricInfo", device, info, told);
}

nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned* shared) {
    return tell("nvmlDeviceGetMultiGpuBoard", device, shared, config()->shared_board ? 1U : 0U);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
    return tell("nvmlDeviceGetPersistenceMode", device, mode, NVML_FEATURE_ENABLED);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned* generation) {
    const auto now = static_cast<unsigned>(number("PCIE_GENERATION", 5));
    return tell("nvmlDeviceGetCurrPcieLinkGeneration", device, generation, now);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned* width) {
    const auto now = static_cast<unsigned>(number("PCIE_WIDTH", 16));
    return tell("nvmlDeviceGetCurrPcieLinkWidth", device, width, now);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned* generation) {
    return tell("nvmlDeviceGetMaxPcieLinkGeneration", device, generation, 5U);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned* width) {
    return tell("nvmlDeviceGetMaxPcieLinkWidth", device, width, 16U);
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t kind, nvmlEccCounterType_t,
                                         unsigned long long* errors) {
    const bool corrected = kind == NVML_MEMORY_ERROR_TYPE_CORRECTED;
    const char* name = corrected ? "ECC_CORRECTED" : "ECC_UNCORRECTED";
    const auto told = static_cast<unsigned long long>(number_of(index_of(device), name, 0));
    return tell("nvmlDeviceGetTotalEccErrors", device, errors, told);
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned* corrected, unsigned* uncorrected,
                                       unsigned* pending, unsigned* failed) {
    *corrected = 0;
    *pending = static_cast<unsigned>(number("REMAP_PENDING", 0));
    *failed = static_cast<unsigned>(number("REMAP_FAILED", 0));
    const auto rows = static_cast<unsigned>(number("REMAPPED_ROWS", 0));
    return tell("nvmlDeviceGetRemappedRows", device, uncorrected, rows);
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, nvmlEnableState_t* active) {
    constexpr unsigned kNumLinks = 18;
    if (link >= kNumLinks) return NVML_ERROR_INVALID_ARGUMENT;
    return tell("nvmlDeviceGetNvLinkState", device, active, NVML_FEATURE_ENABLED);
}

// PAIR_LINKS: so many links end at the other GPU of a pair, the rest at those of the next pair in turn; without it, all
// end at a switch.
nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned, nvmlIntNvLinkDeviceType_t* kind) {
    const bool direct = number("PAIR_LINKS", 0) > 0;
    return tell("nvmlDeviceGetNvLinkRemoteDeviceType", device, kind,
                direct ? NVML_NVLINK_DEVICE_TYPE_GPU : NVML_NVLINK_DEVICE_TYPE_SWITCH);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link, nvmlPciInfo_t* out) {
    const int distance = link < static_cast<unsigned>(number("PAIR_LINKS", 0)) ? 1 : 2 + static_cast<int>(link % 2);
    nvmlPciInfo_t pci{};
    std::snprintf(pci.busId, sizeof pci.busId, "00000000:%02X:00.0", 0x19 + (index_of(device) ^ distance));
    return tell("nvmlDeviceGetNvLinkRemotePciInfo_v2", device, out, pci);
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t, nvmlGpuTopologyLevel_t* level) {
    return tell("nvmlDeviceGetTopologyCommonAncestor", device, level, NVML_TOPOLOGY_SYSTEM);
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t, nvmlGpuP2PCapsIndex_t,
                                    nvmlGpuP2PStatus_t* status) {
    return tell("nvmlDeviceGetP2PStatus", device, status, NVML_P2P_STATUS_OK);
}

}  // extern "C"
// NOLINTEND
