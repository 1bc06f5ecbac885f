// Conversion, GIL release and docstrings; nothing else.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "columns.h"
#include "nvml_api.h"
#include "recorder.h"

namespace py = pybind11;
using namespace pybench;

namespace {

// The work of get() without the GIL, its outcome as columns.
template <typename Get>
py::dict columns_of(Get get) {
    Recording recording = [&] {
        const py::gil_scoped_release release;
        return get();
    }();
    return to_columns(std::move(recording));
}

}  // namespace

PYBIND11_MODULE(_nvml, module, py::mod_gil_not_used()) {
    module.doc() = "NVML, opened at run time, and native threads that sample it. Private to pybench.";

    py::register_exception<NvmlError>(module, "NvmlError", PyExc_RuntimeError);

    py::class_<Recorder>(module, "Recorder", "Native threads that record counter, driver series and fields.")
        .def(py::init([](std::vector<std::string> uuids, int64_t counter_period_ns, int64_t polled_period_ns,
                         int64_t start_limit_ns, size_t most_bytes) {
                 const Pace pace{counter_period_ns, polled_period_ns};
                 return std::make_unique<Recorder>(Settings{std::move(uuids), pace, start_limit_ns, most_bytes});
             }),
             py::arg("uuids"), py::kw_only(), py::arg("counter_period_ns"), py::arg("polled_period_ns"),
             py::arg("start_limit_ns"), py::arg("most_bytes") = kMostBytes)
        .def("start", &Recorder::start, py::call_guard<py::gil_scoped_release>(),
             "Open NVML and the GPUs and begin, within the limit. Raises NvmlError, or RuntimeError where no thread "
             "can be started.")
        .def(
            "stop", [](Recorder& sampler) { return columns_of([&] { return sampler.stop(); }); },
            "End within a second; returns the recording as a dict of NumPy columns.")
        .def(
            "snapshot",
            [](Recorder& recorder, int64_t since_ns, bool search, int64_t until_ns) {
                return columns_of([&] { return recorder.snapshot(since_ns, search, until_ns); });
            },
            py::arg("since_ns") = 0, py::arg("search") = true, py::arg("until_ns") = INT64_MAX,
            "The recording between two times, within half a second and without ending it; of the counter all before.")
        .def("anchor", &Recorder::anchor, py::call_guard<py::gil_scoped_release>(),
             "Ask for the next step of every energy counter; returns at once.")
        .def("latest_power_mw", &Recorder::latest_power_mw, py::call_guard<py::gil_scoped_release>(),
             "Newest power of each GPU in mW, -1 where unknown.");
}
