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

class Recorder {
  public:
    explicit Recorder(Settings settings);
    ~Recorder();
    Recorder(const Recorder&) = delete;
    Recorder& operator=(const Recorder&) = delete;

    // Opens NVML and every GPU, then starts, within the start limit. Throws NvmlError, std::system_error without a
    // thread, std::logic_error when running.
    void start();
    // Ends within a second and returns the recording; a GPU in a hanging call is "stalled". Standstills of the machine
    // do not count.
    // Throws std::logic_error when not running, or in another process than started it.
    Recording stop();
    // Copies the readings between two times, with search after the counter's next step. Throws as stop().
    Recording snapshot(int64_t since_ns = 0, bool search = true, int64_t until_ns = INT64_MAX);
    // Requests the next step of every counter for an end of a window, without waiting. Throws as stop().
    void anchor();
    // Newest power of each GPU in mW, kMissing where unknown.
    std::vector<int64_t> latest_power_mw();

  private:
    std::shared_ptr<Session> running(bool required);
    std::shared_ptr<Session> take();

    const Settings settings_;
    const uint64_t process_;  // the process this belongs to: a fork copies no threads
    std::mutex mutex_;        // guards session_
    std::shared_ptr<Session> session_;
};

}  // namespace pybench
