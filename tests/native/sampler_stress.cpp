// Starts and stops the sampler many times while other threads look on; built with sanitizers by the test suite.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "nvml_api.h"
#include "recorder.h"

using namespace pybench;

namespace {

constexpr int kSessions = 30;

[[noreturn]] void fail(const char* what, int session) {
    std::fprintf(stderr, "session %d: %s\n", session, what);
    std::exit(1);
}

// What two threads that both stop got: one of them a recording.
Recording stop_twice(Recorder& sampler, int session) {
    std::atomic<int> refused{0};
    std::vector<Recording> recordings(2);
    std::vector<std::thread> stoppers;
    for (Recording& recording : recordings) {
        stoppers.emplace_back([&] {
            try {
                recording = sampler.stop();
            } catch (const std::logic_error&) {
                ++refused;
            }
        });
    }
    for (std::thread& stopper : stoppers) stopper.join();
    if (refused != 1) fail("stop must succeed for one of two threads", session);
    return recordings[recordings[0].gpus.empty() ? 1 : 0];
}

void check(const Recording& recording, size_t num_gpus, int session) {
    if (recording.gpus.size() != num_gpus) fail("a GPU is missing", session);
    for (const GpuRecording& gpu : recording.gpus) {
        if (gpu.state == "ok" && gpu.counter.size() < 2) fail("the counter was not read", session);
        if (gpu.dropped_records != 0) fail("records were dropped", session);
    }
}

}  // namespace

int main() {
    std::vector<std::string> uuids;
    for (const GpuInfo& info : Nvml::open()->gpus()) uuids.push_back(info.uuid);

    for (int session = 0; session < kSessions; ++session) {
        Settings settings;
        settings.uuids = uuids;
        Recorder sampler(settings);
        sampler.start();
        std::atomic<bool> over{false};
        std::thread watcher([&] {
            while (!over) {
                sampler.latest_power_mw();
                try {
                    if (sampler.snapshot().gpus.size() != uuids.size()) fail("a GPU is missing", session);
                } catch (const std::logic_error&) {  // stopped meanwhile
                }
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
            }
        });
        // Stopped at once, in the search for a step of the counter, and in the steady part.
        std::this_thread::sleep_for(std::chrono::milliseconds(session % 3 * 110));
        const Recording recording = stop_twice(sampler, session);
        over = true;
        watcher.join();
        check(recording, uuids.size(), session);
    }
    {
        Settings settings;
        settings.uuids = uuids;
        Recorder abandoned(settings);
        abandoned.start();
    }
    std::printf("%d sessions\n", kSessions);
    return 0;
}
