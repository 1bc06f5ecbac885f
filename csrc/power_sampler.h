// One native thread that records what NVML says about power. Knows no Python.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "nvml_api.h"

namespace pybench {

constexpr int64_t kMissing = -1;  // a polled value that could not be read

// Energy counter: a value was read somewhere between before_ns and after_ns (CLOCK_MONOTONIC).
struct CounterColumns {
    std::vector<int64_t> before_ns;
    std::vector<int64_t> after_ns;
    std::vector<uint64_t> energy_mj;
};

// The driver's own power series, with its CLOCK_REALTIME stamps.
struct SeriesColumns {
    std::vector<int64_t> realtime_ns;
    std::vector<int64_t> power_mw;
};

struct PolledColumns {
    std::vector<int64_t> t_ns;
    std::vector<int64_t> instant_mw;
    std::vector<int64_t> average_mw;
};

struct SlowColumns {
    std::vector<int64_t> t_ns;
    std::vector<int64_t> temperature_c;
    std::vector<int64_t> sm_clock_mhz;
    std::vector<int64_t> clock_event_reasons;
};

// CLOCK_REALTIME minus CLOCK_MONOTONIC.
struct OffsetColumns {
    std::vector<int64_t> t_ns;
    std::vector<int64_t> realtime_offset_ns;

    void measure();
};

struct DeviceRecording {
    DeviceInfo info;
    std::string state;  // ok, lost, no_permission, not_supported, error, stalled
    uint64_t failed_calls = 0;
    CounterColumns counter;
    SeriesColumns series;
    PolledColumns polled;
    SlowColumns slow;
};

struct Recording {
    int64_t start_ns = 0;
    int64_t end_ns = 0;
    uint64_t missed_ticks = 0;
    OffsetColumns offsets;
    std::vector<DeviceRecording> devices;
};

class PowerSampler {
  public:
    explicit PowerSampler(std::vector<std::string> uuids);
    ~PowerSampler();
    PowerSampler(const PowerSampler&) = delete;
    PowerSampler& operator=(const PowerSampler&) = delete;

    // Opens NVML and every device, then starts the thread. Throws NvmlError, or std::logic_error when running.
    void start();
    // Ends the thread and hands over what it recorded, within a second also when a driver call hangs: the thread is
    // then left to end by itself and its device is "stalled". Throws std::logic_error when not running.
    Recording stop();
    // Newest power of each device in mW, kMissing where unknown.
    std::vector<int64_t> latest_power_mw() const;

  private:
    struct Shared;  // owned by this object and by the thread, so that a hung thread never touches freed memory
    const std::vector<std::string> uuids_;
    mutable std::mutex mutex_;  // guards what follows; callers may be several threads
    std::shared_ptr<Shared> shared_;
    std::thread thread_;
};

}  // namespace pybench
