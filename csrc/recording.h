// The recording of one sampler: columns of rows, and every GPU's state.
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
    // A copy of the readings between two times, with all earlier counter readings, which show resets, and all stalls.
    Recording between(int64_t since_ns, int64_t until_ns) const;
    // Takes the head and the blocks. A hanging call is a stall from its start to end_ns.
    void conclude(const RecordingHead& head, const GpuBlock* blocks, int64_t end_ns,
                  const std::function<bool(int64_t call_start_ns)>& hangs);

    int64_t start_ns = 0, end_ns = 0;
    std::string boot_id, driver;
    uint64_t num_pollers = 0;
    std::vector<OffsetRow> offsets;
    std::vector<GpuRecording> gpus;
};

}  // namespace pybench
