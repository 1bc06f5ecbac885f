// Conversion, GIL release and docstrings; nothing else.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "nvml_api.h"
#include "power_sampler.h"

namespace py = pybind11;
using namespace pybench;

namespace {

// A read-only array over the vector's own buffer: no copy, and it lives as long as the array.
template <typename Value>
py::array column(std::vector<Value>&& values) {
    auto owner = std::make_unique<std::vector<Value>>(std::move(values));
    std::vector<Value>* raw = owner.get();
    py::capsule capsule(raw, [](void* pointer) { delete static_cast<std::vector<Value>*>(pointer); });
    owner.release();
    py::array array(py::dtype::of<Value>(), {raw->size()}, {sizeof(Value)}, raw->data(), capsule);
    array.attr("flags").attr("writeable") = false;
    return array;
}

py::dict to_dict(DeviceRecording&& device) {
    using py::literals::operator""_a;
    return py::dict("uuid"_a = device.info.uuid, "index"_a = device.info.index, "name"_a = device.info.name,
                    "state"_a = device.state, "failed_calls"_a = device.failed_calls,
                    "counter"_a = py::dict("before_ns"_a = column(std::move(device.counter.before_ns)),
                                           "after_ns"_a = column(std::move(device.counter.after_ns)),
                                           "energy_mj"_a = column(std::move(device.counter.energy_mj))),
                    "series"_a = py::dict("realtime_ns"_a = column(std::move(device.series.realtime_ns)),
                                          "power_mw"_a = column(std::move(device.series.power_mw))),
                    "polled"_a = py::dict("t_ns"_a = column(std::move(device.polled.t_ns)),
                                          "instant_mw"_a = column(std::move(device.polled.instant_mw)),
                                          "average_mw"_a = column(std::move(device.polled.average_mw))),
                    "slow"_a = py::dict("t_ns"_a = column(std::move(device.slow.t_ns)),
                                        "temperature_c"_a = column(std::move(device.slow.temperature_c)),
                                        "sm_clock_mhz"_a = column(std::move(device.slow.sm_clock_mhz)),
                                        "clock_event_reasons"_a = column(std::move(device.slow.clock_event_reasons))));
}

py::dict to_dict(Recording&& recording) {
    using py::literals::operator""_a;
    py::list devices;
    for (DeviceRecording& device : recording.devices) devices.append(to_dict(std::move(device)));
    return py::dict(
        "start_ns"_a = recording.start_ns, "end_ns"_a = recording.end_ns,
        "offsets"_a = py::dict("t_ns"_a = column(std::move(recording.offsets.t_ns)),
                               "realtime_offset_ns"_a = column(std::move(recording.offsets.realtime_offset_ns))),
        "devices"_a = devices);
}

Recording stop_released(PowerSampler& sampler) {
    const py::gil_scoped_release release;
    return sampler.stop();
}

std::vector<DeviceInfo> list_released() {
    const py::gil_scoped_release release;
    return Nvml::open()->devices();
}

}  // namespace

PYBIND11_MODULE(_nvml, module, py::mod_gil_not_used()) {
    module.doc() = "NVML, opened at run time, and a native thread that samples it. Private to pybench.";

    py::register_exception<NvmlError>(module, "NvmlError", PyExc_RuntimeError);

    module.def(
        "devices",
        [] {
            std::vector<py::tuple> found;
            for (const DeviceInfo& info : list_released()) {
                found.push_back(py::make_tuple(info.uuid, info.index, info.name));
            }
            return found;
        },
        "UUID, NVML index and name of every GPU the driver shows. Raises NvmlError.");

    py::class_<PowerSampler>(module, "PowerSampler", "A native thread that records counter, driver series and fields.")
        .def(py::init<std::vector<std::string>>(), py::arg("uuids"))
        .def("start", &PowerSampler::start, py::call_guard<py::gil_scoped_release>(),
             "Open NVML and the devices, start the thread. Raises NvmlError.")
        .def(
            "stop", [](PowerSampler& sampler) { return to_dict(stop_released(sampler)); },
            "End the thread within a second; returns the recording as a dict of NumPy columns.")
        .def("latest_power_mw", &PowerSampler::latest_power_mw, "Newest power of each device in mW, -1 where unknown.");
}
