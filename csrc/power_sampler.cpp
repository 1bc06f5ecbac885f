#include "power_sampler.h"

#include <pthread.h>

#include <atomic>
#include <exception>
#include <stdexcept>
#include <utility>

#include "bounded.h"
#include "clock.h"

namespace pybench {

namespace {

constexpr int64_t kReleasePatience = 100 * kMillisecond;

std::atomic<uint64_t> num_forks{0};  // between this process and the first that loaded us

uint64_t this_process() {
    static const int registered = pthread_atfork(nullptr, nullptr, [] { ++num_forks; });
    (void)registered;
    return num_forks;
}

struct Opening {
    std::shared_ptr<Session> session;
    std::exception_ptr error;
};

// Opening calls the driver, which may hang.
std::shared_ptr<Session> open_session(const Settings& settings) {
    auto opening = std::make_shared<Opening>();
    const bool returned = returns_by(now_ns() + settings.start_limit_ns, [opening, settings] {
        try {
            opening->session = std::make_shared<Session>(settings);
        } catch (...) {
            opening->error = std::current_exception();
        }
    });
    if (!returned) {
        const std::string limit = std::to_string(settings.start_limit_ns / kMillisecond);
        throw NvmlError("opening the GPUs", NVML_ERROR_TIMEOUT, "the driver has not answered for " + limit + " ms", "");
    }
    if (opening->error) std::rethrow_exception(opening->error);
    return std::move(opening->session);
}

}  // namespace

PowerSampler::PowerSampler(Settings settings) : settings_(std::move(settings)), process_(this_process()) {}

PowerSampler::~PowerSampler() {
    if (process_ != this_process()) {
        new std::shared_ptr<Session>(std::move(session_));  // its threads are the parent's: never destroyed here
    } else if (session_) {
        stop();
    }
}

void PowerSampler::start() {
    if (process_ != this_process()) throw std::logic_error("the sampler was made by another process");
    const std::lock_guard<std::mutex> lock(mutex_);
    if (session_) throw std::logic_error("the sampler is already running");
    session_ = open_session(settings_);
    session_->start();
}

std::shared_ptr<Session> PowerSampler::running() {
    if (process_ != this_process()) throw std::logic_error("the sampler runs in another process");
    const std::lock_guard<std::mutex> lock(mutex_);
    return session_;
}

std::shared_ptr<Session> PowerSampler::take() {
    if (process_ != this_process()) throw std::logic_error("the sampler runs in another process");
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!session_) throw std::logic_error("the sampler is not running");
    return std::exchange(session_, nullptr);
}

Recording PowerSampler::stop() {
    std::shared_ptr<Session> session = take();
    Recording recording = session->stop();
    // The last owner shuts NVML down, which may hang too.
    returns_by(now_ns() + kReleasePatience, [session = std::move(session)] {});
    return recording;
}

Recording PowerSampler::snapshot() {
    const std::shared_ptr<Session> session = running();
    if (!session) throw std::logic_error("the sampler is not running");
    return session->snapshot();
}

void PowerSampler::anchor() {
    const std::shared_ptr<Session> session = running();
    if (!session) throw std::logic_error("the sampler is not running");
    session->anchor();
}

std::vector<int64_t> PowerSampler::latest_power_mw() {
    const std::shared_ptr<Session> session = running();
    return session ? session->latest_power_mw() : std::vector<int64_t>(settings_.uuids.size(), kMissing);
}

}  // namespace pybench
