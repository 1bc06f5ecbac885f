// The memory that pollers write and the collector reads: one block for each GPU.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "record.h"

namespace pybench {

// About 35 s of a GPU at default cadence: as long as the collector may be held up before records are dropped.
constexpr uint64_t kRingRecords = 2048;

// Records between one thread that reads a GPU and one that collects.
struct Ring {
    alignas(64) std::atomic<uint64_t> head{0};  // records ever pushed; written by the pusher
    std::atomic<uint64_t> dropped{0};           // records that found the ring full; written by the pusher
    alignas(64) std::atomic<uint64_t> tail{0};  // records ever taken; written by the taker
    alignas(64) Record records[kRingRecords];

    static_assert((kRingRecords & (kRingRecords - 1)) == 0, "positions are masked");

    template <typename Row>
    bool push(uint32_t gpu, const Row& row) {
        const uint64_t position = head.load(std::memory_order_relaxed);
        if (position - tail.load(std::memory_order_acquire) >= kRingRecords) {
            dropped.fetch_add(1, std::memory_order_relaxed);
            return false;
        }
        records[position & (kRingRecords - 1)] = Record::of(position, gpu, row);
        head.store(position + 1, std::memory_order_release);
        return true;
    }

    // Gives every record there is to take(), oldest first; their room is free again after release(end).
    template <typename Take>
    uint64_t each(Take take) const {
        const uint64_t end = head.load(std::memory_order_acquire);
        for (uint64_t at = tail.load(std::memory_order_relaxed); at != end; ++at)
            take(records[at & (kRingRecords - 1)]);
        return end;
    }

    void release(uint64_t end) { tail.store(end, std::memory_order_release); }
};

struct RecordingHead {
    int64_t start_ns = 0;
    std::string boot_id, driver;
    std::atomic<uint64_t> num_pollers{0};
};

constexpr uint32_t kNoIndex = UINT32_MAX;  // of a GPU that could not be opened

struct alignas(64) GpuBlock {
    std::string uuid, name;
    uint32_t index = kNoIndex;
    std::atomic<uint32_t> state{0};                              // State
    std::atomic<uint32_t> capabilities{0};                       // bit mask over Capability
    std::atomic<uint32_t> module_scope{0};                       // power is that of a whole module: GPU, CPU and memory
    std::atomic<int64_t> mig{kMissing}, shared_board{kMissing};  // 0, 1 or kMissing
    std::atomic<uint64_t> failed_calls{0}, missed_ticks{0};
    std::atomic<int64_t> call_start_ns{0};  // of the driver call under way, 0 for none
    std::atomic<int64_t> latest_mw{kMissing};
    Ring ring;
};

}  // namespace pybench
