#include "recording.h"

#include <algorithm>
#include <stdexcept>
#include <type_traits>

#include "capability.h"

namespace pybench {

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

Recording Recording::between(int64_t since_ns, int64_t until_ns) const {
    // Rows are in the order of their times.
    const auto part = [](const auto& rows, int64_t from_ns, int64_t to_ns, auto time_of) {
        const auto earlier = [&](const auto& row, int64_t ns) { return time_of(row) < ns; };
        const auto first = std::lower_bound(rows.begin(), rows.end(), from_ns, earlier);
        return std::decay_t<decltype(rows)>(first, std::lower_bound(first, rows.end(), to_ns, earlier));
    };
    const auto monotonic = [](const auto& row) { return row.t_ns; };
    int64_t lowest_offset_ns = 0, highest_offset_ns = 0;
    if (!offsets.empty()) {
        const auto [lowest, highest] = std::minmax_element(
            offsets.begin(), offsets.end(),
            [](const OffsetRow& a, const OffsetRow& b) { return a.realtime_offset_ns < b.realtime_offset_ns; });
        lowest_offset_ns = lowest->realtime_offset_ns;
        highest_offset_ns = highest->realtime_offset_ns;
    }
    const int64_t series_until_ns = until_ns == INT64_MAX ? INT64_MAX : until_ns + highest_offset_ns;
    Recording copy(gpus.size());
    copy.offsets = part(offsets, since_ns, until_ns, monotonic);
    for (size_t i = 0; i < gpus.size(); ++i) {
        copy.gpus[i].counter = part(gpus[i].counter, 0, until_ns, [](const CounterRow& row) { return row.before_ns; });
        copy.gpus[i].stalls = gpus[i].stalls;
        copy.gpus[i].polled = part(gpus[i].polled, since_ns, until_ns, monotonic);
        copy.gpus[i].slow = part(gpus[i].slow, since_ns, until_ns, monotonic);
        copy.gpus[i].series = part(gpus[i].series, since_ns + lowest_offset_ns, series_until_ns,
                                   [](const SeriesRow& row) { return row.realtime_ns; });
    }
    return copy;
}

void Recording::conclude(const RecordingHead& head, const GpuBlock* blocks, int64_t end,
                         const std::function<bool(int64_t)>& hangs) {
    start_ns = head.start_ns;
    end_ns = end;
    boot_id = head.boot_id;
    driver = head.driver;
    num_pollers = head.num_pollers;
    for (size_t i = 0; i < gpus.size(); ++i) {
        const GpuBlock& block = blocks[i];
        GpuRecording& gpu = gpus[i];
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
        const int64_t call_start_ns = block.call_start_ns;
        if (call_start_ns == 0 || !hangs(call_start_ns)) continue;
        gpu.state = name_of(State::stalled);
        gpu.stalls.push_back({call_start_ns, end});
    }
    // GPUs take turns at measuring the offset; their rings are emptied one after the other.
    std::sort(offsets.begin(), offsets.end(), [](const OffsetRow& a, const OffsetRow& b) { return a.t_ns < b.t_ns; });
}

}  // namespace pybench
