// Reads one GPU: which readings are due, their errors, and their records.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "blocks.h"
#include "capability.h"
#include "clock.h"
#include "nvml_api.h"
#include "sample_series.h"
#include "search_limits.h"
#include "step_search.h"

namespace pybench {

// A reading costs 2.3 to 3.5 ms of CPU time on H200. Between windows it only keeps the grid known and shows resets.
constexpr int64_t kCounterPeriod = 60 * kSecond;
// With a series of 20 ms the polled fields only show the newest power.
constexpr int64_t kPolledBesideSeries = kSecond;
// A driver call that takes longer is recorded as a stall.
constexpr int64_t kStall = kSecond;

// Periods of the readings without a demand.
struct Pace {
    int64_t counter_ns = kCounterPeriod;
    int64_t polled_ns = kPolledBesideSeries;  // where the driver's series shows the power
};

class Gpu {
  public:
    // Throws NvmlError for an unknown GPU. A GPU that can't be opened has a state with the reason.
    Gpu(std::shared_ptr<Nvml> nvml, const std::string& uuid, GpuBlock& block, uint32_t number, Pace pace,
        SearchSlots& search_slots, WallClock& wall_clock);

    // Reads everything once to find out what works. The caller holds access.
    void begin();
    // Makes the due readings. A larger demand number starts a search for the counter's next step, then all readings.
    void visit(uint64_t demand);
    void read_counter();
    int64_t next_ns() const;  // time of the next due reading
    bool begun() const { return begun_; }
    bool has_counter() const { return capabilities_.wanted(kCounter); }

    // For any thread.
    uint64_t served() const { return served_; }                     // newest demand met
    bool predictable() const { return predictable_; }               // steps are predictable for a while
    int64_t call_start_ns() const { return block_.call_start_ns; }  // start of the current driver call, 0 for none

    std::mutex access;                   // held while the GPU is read, a hung call included
    std::atomic<size_t> poller{0};       // its poller
    std::atomic<bool> abandoned{false};  // no collector

  private:
    template <typename Read>
    nvmlReturn_t call(Read read);
    template <typename Row>
    void push(const Row& row);
    void note(Capability capability, nvmlReturn_t code);
    bool wants(uint32_t any) const;
    void publish();
    void probe_identity();
    void drain_series();
    void pace_polls(const OffsetRow& now);
    void poll();
    void poll_fields(PolledRow* row);
    void read_slow();
    template <typename Read>
    int64_t reading(Capability capability, Read read);
    void keep_counter();
    int64_t counter_due_ns() const;
    void begin_search();
    template <typename Read>
    void keep(Cadence* cadence, uint32_t capabilities, Read read);
    void begin_serving(uint64_t demand);
    void settle();

    const std::shared_ptr<Nvml> nvml_;
    nvmlDevice_t handle_ = nullptr;
    const std::string driver_;
    GpuBlock& block_;
    const uint32_t number_;
    SearchSlots& search_slots_;
    WallClock& wall_clock_;
    Capabilities capabilities_;
    bool begun_ = false;
    bool average_by_usage_ = false;  // the field is missing, the older call answers
    bool scheduled_ = false;
    const int64_t polled_beside_series_ns_;
    Cadence counter_, series_, polled_, slow_;
    SampleSeries samples_;
    unsigned num_samples_ = 0;  // capacity of the driver's buffer, 0 while unknown
    StepSearch search_;
    SearchBudget unrequested_;
    uint64_t wanted_ = 0;
    std::optional<int64_t> settled_ns_;  // time of the rest of a demand's readings, after its step
    std::atomic<uint64_t> served_{0};
    std::atomic<bool> predictable_{false};
};

}  // namespace pybench
