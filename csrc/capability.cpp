#include "capability.h"

#include <pthread.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

namespace pybench {

namespace {

constexpr std::array<const char*, kNumCapabilities> kNames = {
    "counter",     "series",   "instant",      "average",     "memory",
    "temperature", "sm_clock", "memory_clock", "utilization", "clock_event_reasons"};
constexpr std::array<Capability, 4> kPower = {kCounter, kSeries, kInstant, kAverage};
constexpr nvmlReturn_t kUnasked = NVML_ERROR_UNKNOWN;

// Never destroyed: a thread that hung may outlive main.
struct Cache {
    std::mutex mutex;
    std::map<std::pair<std::string, std::string>, uint32_t> missing;

    // A fork while another thread is in here would leave the child's mutex locked for ever.
    Cache() {
        pthread_atfork([] { cache().mutex.lock(); }, [] { cache().mutex.unlock(); }, [] { cache().mutex.unlock(); });
    }

    static Cache& cache() {
        static Cache& one = *new Cache;
        return one;
    }
};

}  // namespace

bool means_missing(nvmlReturn_t code) {
    // Drivers older than a field call its number an invalid argument.
    return code == NVML_ERROR_NOT_SUPPORTED || code == NVML_ERROR_FUNCTION_NOT_FOUND ||
           code == NVML_ERROR_INVALID_ARGUMENT;
}

bool means_no_such_gpu(nvmlReturn_t code) {
    return code == NVML_ERROR_NOT_FOUND || code == NVML_ERROR_INVALID_ARGUMENT || code == NVML_ERROR_UNINITIALIZED;
}

std::string name_of(State state) {
    constexpr std::array<const char*, 6> names = {"ok", "lost", "no_permission", "not_supported", "error", "stalled"};
    return names.at(static_cast<size_t>(state));
}

std::vector<std::string> capability_names(uint32_t mask) {
    std::vector<std::string> names;
    for (size_t i = 0; i < kNames.size(); ++i) {
        if (mask >> i & 1U) names.emplace_back(kNames[i]);
    }
    return names;
}

Capabilities::Capabilities(uint32_t refused) {
    for (size_t i = 0; i < codes_.size(); ++i) codes_[i] = refused >> i & 1U ? NVML_ERROR_NOT_SUPPORTED : kUnasked;
}

void Capabilities::note(Capability capability, nvmlReturn_t code) {
    codes_[capability] = code;
    watch(code);
}

void Capabilities::watch(nvmlReturn_t code) {
    lost_ = lost_ || code == NVML_ERROR_GPU_IS_LOST || code == NVML_ERROR_RESET_REQUIRED;
}

void Capabilities::refuse(nvmlReturn_t code) {
    codes_.fill(code);
    watch(code);
    refused_ = true;
}

bool Capabilities::wanted(Capability capability) const {
    return !lost_ && !refused_ && !means_missing(codes_[capability]) && codes_[capability] != NVML_ERROR_NO_PERMISSION;
}

uint32_t Capabilities::working() const {
    uint32_t mask = 0;
    for (size_t i = 0; i < codes_.size(); ++i) mask |= static_cast<uint32_t>(codes_[i] == NVML_SUCCESS) << i;
    return mask;
}

uint32_t Capabilities::missing() const {
    uint32_t mask = 0;
    for (size_t i = 0; i < codes_.size(); ++i) mask |= static_cast<uint32_t>(means_missing(codes_[i])) << i;
    return mask;
}

State Capabilities::state() const {
    if (lost_) return State::lost;
    const auto any_power = [this](auto what) {
        return std::any_of(kPower.begin(), kPower.end(), [&](Capability c) { return what(codes_[c]); });
    };
    if (any_power([](nvmlReturn_t code) { return code == NVML_SUCCESS; })) return State::ok;
    if (any_power([](nvmlReturn_t code) { return code == NVML_ERROR_NO_PERMISSION; })) return State::no_permission;
    return any_power([](nvmlReturn_t code) { return !means_missing(code); }) ? State::error : State::not_supported;
}

uint32_t remembered_missing(const std::string& uuid, const std::string& driver) {
    Cache& cache = Cache::cache();
    const std::lock_guard<std::mutex> lock(cache.mutex);
    const auto found = cache.missing.find({uuid, driver});
    return found == cache.missing.end() ? 0 : found->second;
}

void remember_missing(const std::string& uuid, const std::string& driver, uint32_t mask) {
    Cache& cache = Cache::cache();
    const std::lock_guard<std::mutex> lock(cache.mutex);
    cache.missing[{uuid, driver}] = mask;
}

}  // namespace pybench
