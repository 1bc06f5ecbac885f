// What one sampler recorded: columns of rows, and how every GPU fared.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "blocks.h"
#include "record.h"

namespace pybench {

struct GpuRecording {
    std::string uuid, name;
    uint32_t index = 0;
    std::string state;
    uint64_t failed_calls = 0, missed_ticks = 0, dropped_records = 0;
    std::vector<std::string> capabilities;
    bool module_scope = false;
    int64_t mig = kMissing, shared_board = kMissing;
    std::vector<CounterRow> counter;
    std::vector<SeriesRow> series;
    std::vector<PolledRow> polled;
    std::vector<SlowRow> slow;
    std::vector<StallRow> stalls;
};

struct Recording {
    explicit Recording(size_t num_gpus = 0) : gpus(num_gpus) {}

    void add(const Record& record);
    // A copy with what was read between two times; every reading of the counter up to then, which shows resets, and
    // every stall.
    Recording between(int64_t since_ns, int64_t until_ns) const;
    // Takes over what head and blocks hold beside the rings. A call under way that hangs, by when it began, is a stall
    // up to end_ns.
    void conclude(const RecordingHead& head, const GpuBlock* blocks, int64_t end_ns,
                  const std::function<bool(int64_t call_start_ns)>& hangs);

    int64_t start_ns = 0, end_ns = 0;
    std::string boot_id, driver;
    uint64_t num_pollers = 0;
    std::vector<OffsetRow> offsets;
    std::vector<GpuRecording> gpus;
};

}  // namespace pybench
