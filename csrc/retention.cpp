#include "retention.h"

#include <algorithm>
#include <cstdlib>

#include "clock.h"

namespace pybench {

namespace {

// A window of a minute has all of its readings, and its ends those around them that show the counter's grid.
constexpr int64_t kNear = 31 * kSecond;
constexpr int64_t kSlewed = kMillisecond / 2;
constexpr size_t kMostOffsets = 1 << 16;
constexpr size_t kMostMarks = 1 << 16;

size_t bytes_of(const GpuRecording& gpu) {
    return gpu.counter.size() * sizeof(CounterRow) + gpu.series.size() * sizeof(SeriesRow) +
           gpu.polled.size() * sizeof(PolledRow) + gpu.slow.size() * sizeof(SlowRow) +
           gpu.stalls.size() * sizeof(StallRow);
}

// Of rows in the order of their times, those before a time go unless kept.
template <typename Row, typename Time, typename Kept>
void drop(std::vector<Row>* rows, int64_t before_ns, Time time_of, Kept kept) {
    const auto end =
        std::find_if(rows->begin(), rows->end(), [&](const Row& row) { return time_of(row) >= before_ns; });
    rows->erase(std::remove_if(rows->begin(), end, [&](const Row& row) { return !kept(time_of(row)); }), end);
}

template <typename Kept>
void drop_planes(GpuRecording* gpu, int64_t before_ns, int64_t realtime_offset_ns, Kept kept) {
    drop(&gpu->series, before_ns, [&](const SeriesRow& row) { return row.realtime_ns - realtime_offset_ns; }, kept);
    drop(&gpu->polled, before_ns, [](const PolledRow& row) { return row.t_ns; }, kept);
    drop(&gpu->slow, before_ns, [](const SlowRow& row) { return row.t_ns; }, kept);
}

// Half of the rows of the plane that takes the most room are older.
int64_t middle_ns(const GpuRecording& gpu, int64_t realtime_offset_ns) {
    if (!gpu.series.empty()) return gpu.series[gpu.series.size() / 2].realtime_ns - realtime_offset_ns;
    if (!gpu.polled.empty()) return gpu.polled[gpu.polled.size() / 2].t_ns;
    return gpu.counter.empty() ? 0 : gpu.counter[gpu.counter.size() / 2].before_ns;
}

// Where the wall clock was set or slewed stays.
void thin_offsets(std::vector<OffsetRow>* offsets) {
    std::vector<OffsetRow> kept;
    for (size_t i = 0; i < offsets->size(); ++i) {
        const OffsetRow& row = (*offsets)[i];
        const bool moved = kept.empty() || row.set_by_ns != kept.back().set_by_ns ||
                           std::abs(row.realtime_offset_ns - kept.back().realtime_offset_ns) > kSlewed;
        if (moved || i >= offsets->size() / 2) kept.push_back(row);
    }
    offsets->swap(kept);
}

}  // namespace

void Retention::apply(Recording* recording) {
    if (recording->offsets.size() > kMostOffsets) thin_offsets(&recording->offsets);
    if (marks_ns_.size() > kMostMarks) marks_ns_.erase(marks_ns_.begin(), marks_ns_.begin() + kMostMarks / 2);
    for (GpuRecording& gpu : recording->gpus) {
        if (bytes_of(gpu) > most_bytes_) thin(&gpu, recording->offsets);
    }
}

void Retention::thin(GpuRecording* gpu, const std::vector<OffsetRow>& offsets) const {
    const int64_t offset_ns = offsets.empty() ? 0 : offsets.back().realtime_offset_ns;
    const int64_t before_ns = middle_ns(*gpu, offset_ns);
    drop_planes(gpu, before_ns, offset_ns, [this](int64_t t_ns) {
        const auto next = std::lower_bound(marks_ns_.begin(), marks_ns_.end(), t_ns - kNear);
        return next != marks_ns_.end() && *next <= t_ns + kNear;
    });
    if (bytes_of(*gpu) <= most_bytes_ / 4 * 3) return;
    const auto none = [](int64_t) { return false; };
    drop_planes(gpu, before_ns, offset_ns, none);
    drop(&gpu->counter, before_ns, [](const CounterRow& row) { return row.before_ns; }, none);
    drop(&gpu->stalls, before_ns, [](const StallRow& row) { return row.end_ns; }, none);
}

}  // namespace pybench
