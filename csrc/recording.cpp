#include "recording.h"

#include <algorithm>
#include <stdexcept>
#include <type_traits>

#include "capability.h"

namespace pybench {

namespace {

void describe(GpuRecording& gpu, const GpuBlock& block) {
    gpu.uuid = block.uuid;
    gpu.name = block.name;
    gpu.index = block.index;
    gpu.state = name_of(static_cast<State>(block.state.load()));
    gpu.failed_calls = block.failed_calls;
    gpu.missed_ticks = block.missed_ticks;
    gpu.dropped_records = block.ring.dropped;
    gpu.capabilities = capability_names(block.capabilities);
    gpu.module_scope = block.module_scope != 0;
    gpu.mig = block.mig;
    gpu.shared_board = block.shared_board;
}

}  // namespace

void Recording::add(const Record& record) {
    GpuRecording& gpu = gpus.at(record.gpu);
    switch (record.plane) {
        case Plane::counter:
            return gpu.counter.push_back(record.row<CounterRow>());
        case Plane::series:
            return gpu.series.push_back(record.row<SeriesRow>());
        case Plane::polled:
            return gpu.polled.push_back(record.row<PolledRow>());
        case Plane::slow:
            return gpu.slow.push_back(record.row<SlowRow>());
        case Plane::stall:
            return gpu.stalls.push_back(record.row<StallRow>());
        case Plane::offset:
            return offsets.push_back(record.row<OffsetRow>());
    }
    throw std::runtime_error("record of unknown plane " + std::to_string(static_cast<uint32_t>(record.plane)));
}

Recording Recording::since(int64_t since_ns) const {
    // Rows are in the order of their times, but for series of a wall clock that was stepped back: those are few.
    const auto tail = [](const auto& rows, int64_t from_ns, auto time_of) {
        const auto first = std::lower_bound(rows.begin(), rows.end(), from_ns,
                                            [&](const auto& row, int64_t ns) { return time_of(row) < ns; });
        return std::decay_t<decltype(rows)>(first, rows.end());
    };
    const auto monotonic = [](const auto& row) { return row.t_ns; };
    int64_t lowest_offset_ns = 0;
    if (!offsets.empty()) {
        lowest_offset_ns = std::min_element(offsets.begin(), offsets.end(), [](const OffsetRow& a, const OffsetRow& b) {
                               return a.realtime_offset_ns < b.realtime_offset_ns;
                           })->realtime_offset_ns;
    }
    Recording copy(gpus.size());
    copy.offsets = tail(offsets, since_ns, monotonic);
    for (size_t i = 0; i < gpus.size(); ++i) {
        copy.gpus[i].counter = gpus[i].counter;
        copy.gpus[i].stalls = gpus[i].stalls;
        copy.gpus[i].polled = tail(gpus[i].polled, since_ns, monotonic);
        copy.gpus[i].slow = tail(gpus[i].slow, since_ns, monotonic);
        copy.gpus[i].series =
            tail(gpus[i].series, since_ns + lowest_offset_ns, [](const SeriesRow& row) { return row.realtime_ns; });
    }
    return copy;
}

void Recording::conclude(const RecordingHead& head, const GpuBlock* blocks, int64_t end, int64_t hang_ns) {
    start_ns = head.start_ns;
    end_ns = end;
    boot_id = head.boot_id;
    driver = head.driver;
    num_pollers = head.num_pollers;
    for (size_t i = 0; i < gpus.size(); ++i) {
        const GpuBlock& block = blocks[i];
        describe(gpus[i], block);
        const int64_t call_start_ns = block.call_start_ns;
        if (call_start_ns == 0 || end - call_start_ns < hang_ns) continue;
        gpus[i].state = name_of(State::stalled);
        gpus[i].stalls.push_back({call_start_ns, end});
    }
    // GPUs take turns at measuring the offset; their rings are emptied one after the other.
    std::sort(offsets.begin(), offsets.end(), [](const OffsetRow& a, const OffsetRow& b) { return a.t_ns < b.t_ns; });
}

}  // namespace pybench
