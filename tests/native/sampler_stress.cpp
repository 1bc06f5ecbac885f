// Starts and stops the sampler many times while other threads look on; built with sanitizers by the test suite.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "clock.h"
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

// Stop gives up on readings after 0.8 s, and on a GPU whose call takes 0.3 s: then it may have none.
constexpr int64_t kStopLimit = 800 * kMillisecond, kHangLimit = 300 * kMillisecond;

// Measures standstills of the machine, by a thread that sleeps and wakes late. They lengthen every call.
class Stillness {
  public:
    bool seen() {
        over_ = true;
        thread_.join();
        return lost_ns_ > kHangLimit / 2;
    }

  private:
    void watch() {
        constexpr int64_t kPause = 5 * kMillisecond;
        while (!over_) {
            const int64_t due_ns = now_ns() + kPause;
            sleep_until(due_ns);
            const int64_t late_ns = now_ns() - due_ns;
            if (late_ns > kPause) lost_ns_ += late_ns;
        }
    }

    std::atomic<bool> over_{false};
    int64_t lost_ns_ = 0;  // read once the thread has ended
    std::thread thread_{[this] { watch(); }};
};

void check(const Recording& recording, size_t num_gpus, bool in_time, int session) {
    if (recording.gpus.size() != num_gpus) fail("a GPU is missing", session);
    for (const GpuRecording& gpu : recording.gpus) {
        if (in_time && gpu.state == "ok" && gpu.counter.size() < 2) fail("the counter was not read", session);
        if (gpu.dropped_records != 0) fail("records were dropped", session);
    }
}

}  // namespace

// Takes the GPUs' UUIDs.
int main(int argc, char** argv) {
    const std::vector<std::string> uuids(argv + 1, argv + argc);
    for (int session = 0; session < kSessions; ++session) {
        Settings settings;
        settings.uuids = uuids;
        Recorder sampler(settings);
        Stillness stillness;
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
        const int64_t stopped_ns = now_ns();
        const Recording recording = stop_twice(sampler, session);
        over = true;
        watcher.join();
        const bool in_time = !stillness.seen() && recording.end_ns - stopped_ns < kStopLimit;
        check(recording, uuids.size(), in_time, session);
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
