// One recording under way: the GPUs, the threads that poll them, and the thread that collects and watches.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "blocks.h"
#include "contention.h"
#include "gpu.h"
#include "nvml_api.h"
#include "patience.h"
#include "recording.h"
#include "retention.h"

namespace pybench {

struct Settings {
    std::vector<std::string> uuids;
    Pace pace;
    int64_t start_limit_ns = 10 * kSecond;
    size_t most_bytes = kMostBytes;  // recorded for one GPU
};

// Shared with its pollers: a hanging one keeps its data alive.
class Session : public std::enable_shared_from_this<Session> {
  public:
    explicit Session(const Settings& settings);  // opens NVML; throws NvmlError, std::system_error

    void start();
    Recording stop();  // within a second
    // Readings between two times, within half a second. With search, waits for the counter's next step. Throws
    // std::logic_error once stopped.
    Recording snapshot(int64_t since_ns, bool search, int64_t until_ns);
    void anchor();  // requests a step of every counter without waiting
    std::vector<int64_t> latest_power_mw();

  private:
    struct Poller {
        std::thread thread;
        std::shared_ptr<std::atomic<bool>> ended;
    };

    void add_poller();
    void poll(size_t poller);
    void begin(size_t poller);
    void sleep_until(int64_t deadline_ns, uint64_t demand, bool last);
    template <typename Visit>
    size_t for_own_gpus(size_t poller, Visit visit);
    uint64_t raise_demand();
    void notify_pollers();
    void wait_for(uint64_t demand, int64_t limit_ns, Patience* patience) const;
    void conclude(Recording* recording, int64_t hang_ns, const Patience& patience);
    void end_pollers(Patience* patience);

    void collect_and_watch();
    void collect();  // with mutex_ held
    void merge_pollers();
    void reassign_from_hung(int64_t now);

    const std::shared_ptr<Nvml> nvml_;
    RecordingHead head_;
    const std::unique_ptr<GpuBlock[]> blocks_;
    SearchSlots search_slots_;
    WallClock wall_clock_;
    std::vector<std::unique_ptr<Gpu>> gpus_;
    Contention contention_;
    std::atomic<bool> pollers_merged_{false};  // or they stay separate
    std::atomic<uint64_t> demand_{0};
    std::atomic<bool> stopping_{false};
    std::mutex demand_mutex_;
    std::condition_variable demand_changed_;  // a demand, for the pollers
    std::vector<Poller> pollers_;             // grows in the collector's thread
    std::thread collector_;
    std::condition_variable wake_;  // the collector, to end
    std::mutex mutex_;              // guards the following members and the rings' consumer side
    bool collected_ = false;
    bool handed_over_ = false;
    Recording recording_;
    Retention retention_;
};

}  // namespace pybench
