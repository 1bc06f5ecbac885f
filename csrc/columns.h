// Recordings as dictionaries of NumPy columns: read-only views of the rows, which live as long as any column does.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "recording.h"

namespace pybench {

namespace py = pybind11;

template <typename Row>
class RowColumns {
  public:
    explicit RowColumns(std::vector<Row>&& rows) {
        auto owner = std::make_unique<std::vector<Row>>(std::move(rows));
        rows_ = owner.get();
        capsule_ = py::capsule(rows_, [](void* pointer) { delete static_cast<std::vector<Row>*>(pointer); });
        owner.release();
    }

    template <typename Value>
    py::array operator()(Value Row::* member) const {
        const void* first = rows_->empty() ? nullptr : &(rows_->front().*member);
        py::array array(py::dtype::of<Value>(), {rows_->size()}, {sizeof(Row)}, first, capsule_);
        array.attr("flags").attr("writeable") = false;
        return array;
    }

  private:
    std::vector<Row>* rows_;
    py::capsule capsule_;
};

// A driver's text, with escapes where it is not UTF-8, as of a damaged infoROM.
inline py::object text(const std::string& bytes) {
    PyObject* decoded = PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "backslashreplace");
    if (decoded == nullptr) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(decoded);
}

inline py::object known(int64_t value) { return value == kMissing ? py::object(py::none()) : py::bool_(value != 0); }

inline py::dict to_columns(GpuRecording&& gpu) {
    using py::literals::operator""_a;
    const RowColumns counter(std::move(gpu.counter));
    const RowColumns series(std::move(gpu.series));
    const RowColumns polled(std::move(gpu.polled));
    const RowColumns slow(std::move(gpu.slow));
    const RowColumns stalls(std::move(gpu.stalls));
    return py::dict(
        "uuid"_a = text(gpu.uuid), "index"_a = gpu.index == kNoIndex ? py::object(py::none()) : py::int_(gpu.index),
        "name"_a = text(gpu.name), "state"_a = gpu.state, "failed_calls"_a = gpu.failed_calls,
        "missed_ticks"_a = gpu.missed_ticks, "dropped_records"_a = gpu.dropped_records,
        "capabilities"_a = py::tuple(py::cast(gpu.capabilities)), "scope"_a = gpu.module_scope ? "module" : "gpu_board",
        "mig"_a = known(gpu.mig), "shared_board"_a = known(gpu.shared_board),
        "counter"_a =
            py::dict("before_ns"_a = counter(&CounterRow::before_ns), "after_ns"_a = counter(&CounterRow::after_ns),
                     "energy_mj"_a = counter(&CounterRow::energy_mj)),
        "series"_a =
            py::dict("realtime_ns"_a = series(&SeriesRow::realtime_ns), "power_mw"_a = series(&SeriesRow::power_mw)),
        "polled"_a =
            py::dict("t_ns"_a = polled(&PolledRow::t_ns), "instant_mw"_a = polled(&PolledRow::instant_mw),
                     "average_mw"_a = polled(&PolledRow::average_mw), "memory_mw"_a = polled(&PolledRow::memory_mw)),
        "slow"_a = py::dict("t_ns"_a = slow(&SlowRow::t_ns), "temperature_c"_a = slow(&SlowRow::temperature_c),
                            "sm_clock_mhz"_a = slow(&SlowRow::sm_clock_mhz),
                            "memory_clock_mhz"_a = slow(&SlowRow::memory_clock_mhz),
                            "gpu_utilization_percent"_a = slow(&SlowRow::gpu_utilization_percent),
                            "clock_event_reasons"_a = slow(&SlowRow::clock_event_reasons)),
        "stalls"_a = py::dict("start_ns"_a = stalls(&StallRow::start_ns), "end_ns"_a = stalls(&StallRow::end_ns)));
}

inline py::dict to_columns(Recording&& recording) {
    using py::literals::operator""_a;
    const RowColumns offsets(std::move(recording.offsets));
    py::list gpus;
    for (GpuRecording& gpu : recording.gpus) gpus.append(to_columns(std::move(gpu)));
    return py::dict("start_ns"_a = recording.start_ns, "end_ns"_a = recording.end_ns, "boot_id"_a = recording.boot_id,
                    "driver"_a = recording.driver, "num_pollers"_a = recording.num_pollers,
                    "offsets"_a = py::dict("t_ns"_a = offsets(&OffsetRow::t_ns),
                                           "realtime_offset_ns"_a = offsets(&OffsetRow::realtime_offset_ns),
                                           "set_by_ns"_a = offsets(&OffsetRow::set_by_ns)),
                    "gpus"_a = gpus);
}

}  // namespace pybench
