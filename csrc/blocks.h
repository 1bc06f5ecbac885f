// The memory that pollers write and the collector reads: one block for each GPU, in a file or in no file.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "record.h"
#include "ring.h"

namespace pybench {

constexpr char kFileMagic[8] = {'P', 'Y', 'B', 'P', 'O', 'W', 'E', 'R'};
constexpr uint64_t kFileVersion = 1;

// The durable file: this head, the blocks, then 64-byte records to the end. Zero bytes are a valid empty file.
struct FileHead {
    char magic[8];
    uint64_t version;
    uint64_t num_gpus;
    int64_t start_ns;
    char boot_id[40];
    std::atomic<int64_t> end_ns;  // when the collector was last alive
    std::atomic<uint64_t> num_pollers;
    std::atomic<uint64_t> num_unwritten;  // records that the file system refused; they stay in memory only
};

constexpr size_t kHeadBytes = 4096;
static_assert(sizeof(FileHead) <= kHeadBytes);

constexpr uint32_t kNoIndex = UINT32_MAX;  // of a GPU that could not be opened

struct alignas(64) GpuBlock {
    char uuid[96];
    char name[96];
    uint32_t index;
    std::atomic<uint32_t> state;             // State
    std::atomic<uint32_t> capabilities;      // bit mask over Capability
    std::atomic<uint32_t> module_scope;      // power is told for a whole module: GPU, CPU and memory
    std::atomic<int64_t> mig, shared_board;  // 0, 1 or kMissing
    std::atomic<uint64_t> failed_calls, missed_ticks;
    std::atomic<int64_t> call_start_ns;  // of the driver call under way, 0 for none
    std::atomic<int64_t> latest_mw;
    Ring ring;
};

class Blocks {
  public:
    // New ones, in a new file unless path is empty. Throws std::system_error.
    Blocks(const std::string& path, size_t num_gpus);
    ~Blocks();
    Blocks(const Blocks&) = delete;
    Blocks& operator=(const Blocks&) = delete;

    FileHead& head() { return *reinterpret_cast<FileHead*>(memory_); }
    GpuBlock& gpu(size_t i) { return reinterpret_cast<GpuBlock*>(memory_ + kHeadBytes)[i]; }
    size_t num_gpus() const { return num_gpus_; }
    void discard();  // removes the file
    // Adds records to the file; without one, does nothing.
    void append(const std::vector<Record>& records);

  private:
    const std::string path_;
    const size_t num_gpus_;
    int file_ = -1;
    size_t size_;
    char* memory_;
};

}  // namespace pybench
