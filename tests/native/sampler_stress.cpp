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
#include "power_sampler.h"

using namespace pybench;

namespace {

constexpr int kSessions = 50;

[[noreturn]] void fail(const char* what, int session) {
    std::fprintf(stderr, "session %d: %s\n", session, what);
    std::exit(1);
}

}  // namespace

int main() {
    std::vector<std::string> uuids;
    for (const DeviceInfo& info : Nvml::open()->devices()) uuids.push_back(info.uuid);

    PowerSampler sampler(uuids);
    std::atomic<bool> over{false};
    std::thread watcher([&] {
        while (!over) {
            sampler.latest_power_mw();
            std::this_thread::yield();
        }
    });
    for (int session = 0; session < kSessions; ++session) {
        sampler.start();
        // Stopped at once, in the hunt for a step of the counter, and in the steady part.
        std::this_thread::sleep_for(std::chrono::milliseconds(session % 3 * 110));
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
        const Recording& recording = recordings[recordings[0].devices.empty() ? 1 : 0];
        if (recording.devices.size() != uuids.size()) fail("a device is missing", session);
        for (const DeviceRecording& device : recording.devices) {
            if (device.counter.energy_mj.size() < 2) fail("the counter was not read", session);
        }
    }
    over = true;
    watcher.join();
    {
        PowerSampler abandoned(uuids);
        abandoned.start();
    }
    std::printf("%d sessions\n", kSessions);
    return 0;
}
