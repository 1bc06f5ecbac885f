// One GPU being read: which readings are due, what they cost it in errors, and where their records go.
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
#include "search_budget.h"
#include "search_slots.h"
#include "step_search.h"
#include "wall_clock.h"

namespace pybench {

// A reading costs 2.3 to 3.5 ms of CPU time on H200: at the ends that matter it is worth that, between them it only
// keeps the grid known and shows a reset.
constexpr int64_t kCounterPeriod = 60 * kSecond;
// Beside a series of samples 20 ms apart the polled fields show the newest power, and no more.
constexpr int64_t kPolledBesideSeries = kSecond;
// A driver call that takes longer is recorded as a stall.
constexpr int64_t kStall = kSecond;

// How often a GPU is read where nothing else makes it so.
struct Pace {
    int64_t counter_ns = kCounterPeriod;
    int64_t polled_ns = kPolledBesideSeries;  // where the driver's series shows the power
};

class Gpu {
  public:
    // Throws NvmlError where there is no such GPU. One that can't be opened has the state that gives the reason.
    Gpu(std::shared_ptr<Nvml> nvml, const std::string& uuid, GpuBlock& block, uint32_t number, Pace pace,
        SearchSlots& search_slots, WallClock& wall_clock);

    // Called by one thread at a time, which holds access. Finds out what works, by reading everything once.
    void begin();
    // Reads what is due. A demand is a number: when it has grown, the counter's next step is searched, then the rest
    // is read.
    void visit(uint64_t demand);
    void read_counter();
    int64_t next_ns() const;  // when something is due again
    bool begun() const { return begun_; }
    bool has_counter() const { return capabilities_.wanted(kCounter); }

    // For any thread.
    uint64_t served() const { return served_; }                     // the newest demand that was met
    bool predictable() const { return predictable_; }               // steps of its counter can be expected for a while
    int64_t call_start_ns() const { return block_.call_start_ns; }  // of the driver call under way, 0 for none

    std::mutex access;                   // held while the GPU is read, a hung call included
    std::atomic<size_t> poller{0};       // which poller's it is
    std::atomic<bool> abandoned{false};  // nobody collects any more

  private:
    void open(const std::string& uuid);
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
    void schedule();
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
    unsigned num_samples_ = 0;  // that the driver keeps, 0 while unknown
    StepSearch search_;
    SearchBudget unrequested_;
    uint64_t wanted_ = 0;
    std::optional<int64_t> settled_ns_;  // when what is wanted may be read to its end, once its step was seen
    std::atomic<uint64_t> served_{0};
    std::atomic<bool> predictable_{false};
};

}  // namespace pybench
