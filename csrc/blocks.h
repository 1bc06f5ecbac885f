// The memory that pollers write and the collector reads: one block for each GPU.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ring.h"

namespace pybench {

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

class Blocks {
  public:
    explicit Blocks(size_t num_gpus) : gpus_(new GpuBlock[num_gpus]) {}

    RecordingHead& head() { return head_; }
    GpuBlock& gpu(size_t i) { return gpus_[i]; }

  private:
    RecordingHead head_;
    std::unique_ptr<GpuBlock[]> gpus_;
};

}  // namespace pybench
