// Rows of fixed size, and the 64-byte record that carries a row.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace pybench {

constexpr int64_t kMissing = -1;  // a value that could not be read

enum class Plane : uint32_t { counter, series, polled, slow, stall, offset };

// The energy counter's value was read somewhere between before_ns and after_ns.
struct CounterRow {
    static constexpr Plane plane = Plane::counter;
    int64_t before_ns, after_ns;
    uint64_t energy_mj;
};

// One sample of the driver's series, stamped by CLOCK_REALTIME as set at the start of recording.
struct SeriesRow {
    static constexpr Plane plane = Plane::series;
    int64_t realtime_ns, power_mw;
};

struct PolledRow {
    static constexpr Plane plane = Plane::polled;
    int64_t t_ns, instant_mw, average_mw, memory_mw;
};

struct SlowRow {
    static constexpr Plane plane = Plane::slow;
    int64_t t_ns, temperature_c, sm_clock_mhz, memory_clock_mhz, gpu_utilization_percent, clock_event_reasons;
};

// A call that took longer than a second.
struct StallRow {
    static constexpr Plane plane = Plane::stall;
    int64_t start_ns, end_ns;
};

// CLOCK_REALTIME minus CLOCK_MONOTONIC, without later settings of the clock.
struct OffsetRow {
    static constexpr Plane plane = Plane::offset;
    int64_t t_ns, realtime_offset_ns, set_by_ns;
};

struct Record {
    uint64_t sequence;  // by GPU, from 0 without holes
    uint32_t gpu;
    Plane plane;
    int64_t values[6];

    template <typename Row>
    static Record of(uint64_t sequence, uint32_t gpu, const Row& row) {
        static_assert(std::is_trivially_copyable_v<Row> && sizeof(Row) <= sizeof(values));
        Record record{sequence, gpu, Row::plane, {}};
        std::memcpy(record.values, &row, sizeof(Row));
        return record;
    }

    template <typename Row>
    Row row() const {
        Row row;
        std::memcpy(&row, values, sizeof(Row));
        return row;
    }
};

static_assert(sizeof(Record) == 64, "one cache line");

}  // namespace pybench
