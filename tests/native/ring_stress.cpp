// One thread pushes into a ring as fast as it can while another takes: nothing is lost, repeated or torn uncounted.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "blocks.h"

using namespace pybench;

namespace {

constexpr int64_t kPushes = 300'000;

[[noreturn]] void fail(const char* what) {
    std::fprintf(stderr, "%s\n", what);
    std::exit(1);
}

// Without a taker a ring fills up, and says how many did not fit.
void overflow() {
    auto ring = std::make_unique<Ring>();
    for (uint64_t i = 0; i < kRingRecords + 5; ++i) {
        if (ring->push(0, SeriesRow{static_cast<int64_t>(i), 0}) != (i < kRingRecords))
            fail("full at the wrong record");
    }
    if (ring->dropped != 5) fail("dropped records are miscounted");
    int64_t next = 0;
    ring->release(ring->each([&](const Record& record) {
        if (record.row<SeriesRow>().realtime_ns != next++) fail("the oldest records must stay");
    }));
    if (!ring->push(0, SeriesRow{})) fail("no room after release");
}

void stress() {
    auto ring = std::make_unique<Ring>();
    int64_t pushed = 0;
    std::thread pusher([&] {
        for (int64_t i = 0; i < kPushes; ++i) pushed += ring->push(3, StallRow{i, -i}) ? 1 : 0;
    });
    int64_t taken = 0, last = -1;
    const auto take = [&] {
        ring->release(ring->each([&](const Record& record) {
            const StallRow row = record.row<StallRow>();
            if (row.end_ns != -row.start_ns || row.start_ns <= last) fail("torn or out of order");
            if (record.sequence != static_cast<uint64_t>(taken) || record.gpu != 3) fail("wrong sequence");
            last = row.start_ns;
            ++taken;
        }));
    };
    while (taken + static_cast<int64_t>(ring->dropped.load()) < kPushes) take();
    pusher.join();
    take();
    if (taken != pushed || taken + static_cast<int64_t>(ring->dropped.load()) != kPushes)
        fail("records unaccounted for");
}

}  // namespace

int main() {
    overflow();
    stress();
    std::printf("every record accounted for\n");
    return 0;
}
