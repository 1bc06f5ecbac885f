#include "recorder.h"

#include <pthread.h>

#include <atomic>
#include <exception>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "clock.h"
#include "patience.h"

namespace pybench {

namespace {

constexpr int64_t kReleaseLimit = 100 * kMillisecond;

std::atomic<uint64_t> num_forks{0};  // between this process and the first that loaded us

uint64_t this_process() {
    static const int registered = pthread_atfork(nullptr, nullptr, [] { ++num_forks; });
    (void)registered;
    return num_forks;
}

}  // namespace

Recorder::Recorder(Settings settings) : settings_(std::move(settings)), process_(this_process()) {}

Recorder::~Recorder() {
    if (process_ != this_process()) {
        new std::shared_ptr<Session>(std::move(session_));  // its threads are the parent's: never destroyed here
    } else if (session_) {
        stop();
    }
}

void Recorder::start() {
    if (process_ != this_process()) throw std::logic_error("the sampler was made by another process");
    const std::lock_guard<std::mutex> lock(mutex_);
    if (session_) throw std::logic_error("the sampler is already running");
    struct Opening {
        std::shared_ptr<Session> session;
        std::exception_ptr error;
    };
    auto opening = std::make_shared<Opening>();
    const bool returned = returns_within(settings_.start_limit_ns, [opening, settings = settings_] {
        try {
            opening->session = std::make_shared<Session>(settings);
        } catch (...) {
            opening->error = std::current_exception();
        }
    });
    if (!returned) {
        const std::string limit = std::to_string(settings_.start_limit_ns / kMillisecond);
        throw NvmlError("opening the GPUs", NVML_ERROR_TIMEOUT, "the driver has not answered for " + limit + " ms", "");
    }
    if (opening->error) std::rethrow_exception(opening->error);
    opening->session->start();
    session_ = std::move(opening->session);
}

std::shared_ptr<Session> Recorder::running(bool required) {
    if (process_ != this_process()) throw std::logic_error("the sampler runs in another process");
    const std::lock_guard<std::mutex> lock(mutex_);
    if (required && !session_) throw std::logic_error("the sampler is not running");
    return session_;
}

std::shared_ptr<Session> Recorder::take() {
    if (process_ != this_process()) throw std::logic_error("the sampler runs in another process");
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!session_) throw std::logic_error("the sampler is not running");
    return std::exchange(session_, nullptr);
}

Recording Recorder::stop() {
    std::shared_ptr<Session> session = take();
    Recording recording = session->stop();
    // The last owner shuts NVML down, which may hang too.
    auto* owner = new std::shared_ptr<Session>(std::move(session));
    try {
        returns_within(kReleaseLimit, [owner] { delete owner; });
    } catch (const std::system_error&) {
        delete owner;  // no thread to wait for it
    }
    return recording;
}

Recording Recorder::snapshot(int64_t since_ns, bool search, int64_t until_ns) {
    return running(true)->snapshot(since_ns, search, until_ns);
}

void Recorder::anchor() { running(true)->anchor(); }

std::vector<int64_t> Recorder::latest_power_mw() {
    const std::shared_ptr<Session> session = running(false);
    return session ? session->latest_power_mw() : std::vector<int64_t>(settings_.uuids.size(), kMissing);
}

}  // namespace pybench
