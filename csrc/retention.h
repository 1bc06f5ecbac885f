// Retention of a long recording: all new readings, older ones near a mark, and finally none of the oldest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "recording.h"

namespace pybench {

// For one GPU; ten hours of readings of an H200.
constexpr size_t kMostBytes = size_t{32} << 20;

class Retention {
  public:
    explicit Retention(size_t most_bytes) : most_bytes_(most_bytes) {}

    // An end of a window: readings near it are kept the longest.
    void mark(int64_t t_ns) { marks_ns_.push_back(t_ns); }
    // Removes readings of GPUs above their share.
    void apply(Recording* recording);

  private:
    void thin(GpuRecording* gpu, const std::vector<OffsetRow>& offsets) const;

    const size_t most_bytes_;
    std::vector<int64_t> marks_ns_;  // rising
};

}  // namespace pybench
