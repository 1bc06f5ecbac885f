// CLOCK_REALTIME beside CLOCK_MONOTONIC. Somebody may set it while a recording runs: by how much is kept apart.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "record.h"

namespace pybench {

// For any thread.
class WallClock {
  public:
    OffsetRow read();

  private:
    std::mutex mutex_;
    std::optional<OffsetRow> last_;
};

}  // namespace pybench
