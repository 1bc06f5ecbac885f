// A day of readings of one GPU, marked every so many seconds: how many are kept, and of which times.
// Arguments: seconds between marks (0: none), hours of recording, most bytes.
#include "retention.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "clock.h"

using namespace pybench;

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    const int64_t mark_ns = static_cast<int64_t>(std::atof(argv[1]) * kSecond);
    const int64_t end_ns = std::atoll(argv[2]) * 3600 * kSecond;
    constexpr int64_t kOffset = 1'700'000'000 * kSecond;
    Retention retention(static_cast<size_t>(std::atoll(argv[3])));
    Recording recording(1);
    GpuRecording& gpu = recording.gpus[0];
    size_t most_rows = 0;
    for (int64_t t_ns = 0; t_ns < end_ns; t_ns += 20 * kMillisecond) {
        gpu.series.push_back({t_ns + kOffset, 400'000});
        if (t_ns % (100 * kMillisecond) == 0) gpu.polled.push_back({t_ns, 400'000, 400'000, 50'000});
        if (t_ns % (60 * kSecond) == 0) gpu.counter.push_back({t_ns, t_ns + kMillisecond, 1});
        if (t_ns % (2 * kSecond) == 0) recording.offsets.push_back({t_ns, kOffset, 0});
        if (mark_ns > 0 && t_ns % mark_ns < 20 * kMillisecond) retention.mark(t_ns);
        if (t_ns % kSecond == 0) retention.apply(&recording);
        most_rows = std::max(most_rows, gpu.series.size());
    }
    size_t num_near = 0, num_far = 0;  // of the first tenth, within and beyond 30 and 32 s of a mark
    for (const SeriesRow& row : gpu.series) {
        const int64_t t_ns = row.realtime_ns - kOffset;
        if (t_ns >= end_ns / 10 || mark_ns == 0) continue;
        const int64_t since_ns = t_ns % mark_ns;
        const int64_t away_ns = std::min(since_ns, mark_ns - since_ns);
        if (away_ns < 30 * kSecond) ++num_near;
        if (away_ns > 32 * kSecond) ++num_far;
    }
    const int64_t first_ns = gpu.series.empty() ? -1 : gpu.series.front().realtime_ns - kOffset;
    const int64_t last_ns = gpu.series.empty() ? -1 : gpu.series.back().realtime_ns - kOffset;
    std::printf("%zu %zu %zu %zu %zu %zu %.3f %.3f\n", most_rows, gpu.series.size(), num_near, num_far,
                gpu.counter.size(), recording.offsets.size(), static_cast<double>(first_ns) / kSecond,
                static_cast<double>(last_ns) / kSecond);
    return 0;
}
