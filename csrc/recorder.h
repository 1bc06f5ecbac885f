// A recorder of power that threads of its caller may share. Independent of Python.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "recording.h"
#include "session.h"

namespace pybench {

// The GPUs that answer. Throws NvmlError, also for a driver that has not answered by then.
std::vector<GpuInfo> gpus_within(int64_t limit_ns);

class Recorder {
  public:
    explicit Recorder(Settings settings);
    ~Recorder();
    Recorder(const Recorder&) = delete;
    Recorder& operator=(const Recorder&) = delete;

    // Opens NVML and every GPU, then begins, within the start limit. Throws NvmlError, std::system_error where no
    // thread can be started, or std::logic_error when running.
    void start();
    // Ends and hands over what was recorded, within a second also when a driver call hangs: its GPU is then "stalled".
    // Time in which the machine stands still counts towards no limit.
    // Throws std::logic_error when not running, or in another process than started it.
    Recording stop();
    // What was recorded between two times, with the counter's next step if it is searched. Throws as stop().
    Recording snapshot(int64_t since_ns = 0, bool search = true, int64_t until_ns = INT64_MAX);
    // Asks for the next step of every counter, as an end of a window, without waiting. Throws as stop().
    void anchor();
    // Newest power of each GPU in mW, kMissing where unknown.
    std::vector<int64_t> latest_power_mw();

  private:
    std::shared_ptr<Session> running();
    std::shared_ptr<Session> take();

    const Settings settings_;
    const uint64_t process_;  // the process this belongs to: a fork copies no threads
    std::mutex mutex_;        // guards session_
    std::shared_ptr<Session> session_;
};

}  // namespace pybench
