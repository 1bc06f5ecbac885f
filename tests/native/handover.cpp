// A Python module for the benchmarks: recordings of any size to hand over, and the time of one push into a ring.
#include <pybind11/pybind11.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "blocks.h"
#include "clock.h"
#include "columns.h"

namespace py = pybind11;
using namespace pybench;

namespace {

std::unique_ptr<Recording> recording_of(size_t num_records) {
    auto recording = std::make_unique<Recording>(1);
    recording->gpus[0].counter.resize(num_records);
    recording->gpus[0].counter.back().energy_mj = 42;
    return recording;
}

// Median over batches, taken out again between them: the clock costs about as much as a push.
double push_ns(size_t num_batches) {
    constexpr int64_t kBatch = kRingRecords / 2;
    auto ring = std::make_unique<Ring>();
    std::vector<int64_t> lengths_ns;
    for (size_t batch = 0; batch < num_batches; ++batch) {
        const int64_t before_ns = now_ns();
        for (int64_t i = 0; i < kBatch; ++i) ring->push(0, CounterRow{i, i, 0});
        lengths_ns.push_back(now_ns() - before_ns);
        ring->release(ring->each([](const Record&) {}));
    }
    std::nth_element(lengths_ns.begin(), lengths_ns.begin() + num_batches / 2, lengths_ns.end());
    return static_cast<double>(lengths_ns[num_batches / 2]) / kBatch;
}

}  // namespace

PYBIND11_MODULE(handover, module, py::mod_gil_not_used()) {
    py::class_<Recording>(module, "Recording");
    module.def("recording_of", &recording_of);
    module.def("hand_over", [](Recording& recording) { return to_columns(std::move(recording)); });
    module.def("push_ns", &push_ns);
}
