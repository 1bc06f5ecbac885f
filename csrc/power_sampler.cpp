#include "power_sampler.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace pybench {

namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kPolledPeriod = 50 * kMillisecond;
// The counter publishes every 100 ms. Reading it a little faster walks the reading over its phase, so that some reads
// see the same value twice, and each such pair pins the moment of publication to a few milliseconds.
constexpr int64_t kCounterPeriod = 97 * kMillisecond;
// The driver keeps 2.4 s of samples.
constexpr int64_t kSeriesPeriod = 1000 * kMillisecond;
// At the start and the end the counter is read until it steps, so that a publication lies on both sides of a window.
constexpr int64_t kHuntSpan = 150 * kMillisecond;
constexpr int64_t kHuntPause = 4 * kMillisecond;
constexpr int64_t kStopPatience = 800 * kMillisecond;
constexpr int64_t kStopPause = 2 * kMillisecond;
constexpr int kNoDevice = -1;

int64_t read_clock(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

int64_t now_ns() { return read_clock(CLOCK_MONOTONIC); }

void sleep_until(int64_t deadline_ns) {
    const timespec deadline{deadline_ns / 1'000'000'000LL, deadline_ns % 1'000'000'000LL};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, nullptr) != 0) {
    }
}

// The tightest of a few tries, so that a preemption between the two clocks does not count as offset.
int64_t realtime_offset_ns() {
    int64_t best_span = INT64_MAX;
    int64_t best_offset = 0;
    for (int i = 0; i < 5; ++i) {
        const int64_t before = now_ns();
        const int64_t realtime = read_clock(CLOCK_REALTIME);
        const int64_t after = now_ns();
        if (after - before >= best_span) continue;
        best_span = after - before;
        best_offset = realtime - (before + after) / 2;
    }
    return best_offset;
}

}  // namespace

void OffsetColumns::measure() {
    t_ns.push_back(now_ns());
    realtime_offset_ns.push_back(pybench::realtime_offset_ns());
}

namespace {

// An absolute schedule: late ticks are skipped and counted, never made up for.
struct Cadence {
    int64_t period_ns;
    int64_t next_ns;

    bool due(int64_t now) const { return now >= next_ns; }
    uint64_t advance(int64_t now) {
        const int64_t missed = (now - next_ns) / period_ns;
        next_ns += (missed + 1) * period_ns;
        return static_cast<uint64_t>(missed);
    }
};

enum Plane { kCounter, kSeries, kPolled, kNumPlanes };

struct Device {
    nvmlDevice_t handle = nullptr;
    bool lost = false;
    std::array<nvmlReturn_t, kNumPlanes> code{};  // of the last call; some codes end the plane for good
    uint64_t last_seen_us = 0;

    bool readable(Plane plane) const {
        const nvmlReturn_t last = code[plane];
        return !lost && last != kNotSupported && last != kNoPermission && last != kFunctionNotFound;
    }

    std::string state() const {
        if (lost) return "lost";
        const auto is = [this](nvmlReturn_t wanted) {
            return std::any_of(code.begin(), code.end(), [wanted](nvmlReturn_t c) { return c == wanted; });
        };
        if (is(kSuccess)) return "ok";
        if (is(kNoPermission)) return "no_permission";
        return readable(kCounter) || readable(kSeries) || readable(kPolled) ? "error" : "not_supported";
    }
};

}  // namespace

struct PowerSampler::Shared {
    std::shared_ptr<Nvml> nvml;
    std::vector<Device> devices;  // the thread's own
    std::atomic<bool> stop{false};
    std::atomic<bool> done{false};
    std::atomic<int> calling{kNoDevice};  // device whose call is under way: the one to blame for a hang
    std::unique_ptr<std::atomic<int64_t>[]> latest_mw;
    std::mutex mutex;  // guards recording; never held during a driver call
    Recording recording;

    void run();
    void poll(size_t i);
    void read_counter(size_t i);
    void drain_series(size_t i);
    void hunt_counter_step();
    void note(size_t i, Plane plane, nvmlReturn_t code);

    template <typename Read>
    void each(Plane plane, Read read) {
        for (size_t i = 0; i < devices.size(); ++i) {
            if (!devices[i].readable(plane)) continue;
            calling = static_cast<int>(i);
            read(i);
            calling = kNoDevice;
        }
    }
};

void PowerSampler::Shared::note(size_t i, Plane plane, nvmlReturn_t code) {
    Device& device = devices[i];
    device.code[plane] = code;
    device.lost = device.lost || code == kGpuIsLost || code == kResetRequired;
    if (device.lost) latest_mw[i] = kMissing;
    const std::lock_guard<std::mutex> lock(mutex);
    DeviceRecording& recorded = recording.devices[i];
    recorded.state = device.state();
    if (code != kSuccess) ++recorded.failed_calls;
}

void PowerSampler::Shared::poll(size_t i) {
    const nvmlDevice_t handle = devices[i].handle;
    std::optional<int64_t> instant_mw, average_mw;
    int64_t usage_mw = kMissing, temperature_c = kMissing, clock_mhz = kMissing, reasons = kMissing;
    const int64_t t_ns = now_ns();
    nvmlReturn_t code = nvml->power_fields(handle, &instant_mw, &average_mw);
    if (code != kSuccess && code != kGpuIsLost) {
        // Before the power fields existed there was only this one, a trailing average.
        code = nvml->power_usage_mw(handle, &usage_mw);
        if (code == kSuccess) average_mw = usage_mw;
    }
    note(i, kPolled, code);
    if (code != kSuccess) return;
    nvml->temperature_c(handle, &temperature_c);
    nvml->sm_clock_mhz(handle, &clock_mhz);
    nvml->clock_event_reasons(handle, &reasons);
    latest_mw[i] = instant_mw ? *instant_mw : average_mw.value_or(kMissing);

    const std::lock_guard<std::mutex> lock(mutex);
    PolledColumns& polled = recording.devices[i].polled;
    polled.t_ns.push_back(t_ns);
    polled.instant_mw.push_back(instant_mw.value_or(kMissing));
    polled.average_mw.push_back(average_mw.value_or(kMissing));
    SlowColumns& slow = recording.devices[i].slow;
    slow.t_ns.push_back(t_ns);
    slow.temperature_c.push_back(temperature_c);
    slow.sm_clock_mhz.push_back(clock_mhz);
    slow.clock_event_reasons.push_back(reasons);
}

void PowerSampler::Shared::read_counter(size_t i) {
    uint64_t energy_mj = 0;
    const int64_t before_ns = now_ns();
    const nvmlReturn_t code = nvml->energy_mj(devices[i].handle, &energy_mj);
    const int64_t after_ns = now_ns();
    note(i, kCounter, code);
    if (code != kSuccess) return;
    const std::lock_guard<std::mutex> lock(mutex);
    CounterColumns& counter = recording.devices[i].counter;
    counter.before_ns.push_back(before_ns);
    counter.after_ns.push_back(after_ns);
    counter.energy_mj.push_back(energy_mj);
}

void PowerSampler::Shared::drain_series(size_t i) {
    Device& device = devices[i];
    std::vector<PowerSample> samples;
    nvmlReturn_t code = nvml->power_samples(device.handle, device.last_seen_us, &samples);
    if (code == kNotFound) code = kSuccess;  // nothing new
    note(i, kSeries, code);
    const std::lock_guard<std::mutex> lock(mutex);
    recording.offsets.measure();
    SeriesColumns& series = recording.devices[i].series;
    for (const PowerSample& sample : samples) {
        series.realtime_ns.push_back(sample.realtime_us * 1000);
        series.power_mw.push_back(sample.power_mw);
        device.last_seen_us = std::max(device.last_seen_us, static_cast<uint64_t>(sample.realtime_us));
    }
}

void PowerSampler::Shared::hunt_counter_step() {
    std::vector<size_t> first(devices.size());
    for (size_t i = 0; i < devices.size(); ++i) first[i] = recording.devices[i].counter.energy_mj.size();
    const int64_t end_ns = now_ns() + kHuntSpan;
    bool stepped = false;
    while (!stepped && now_ns() < end_ns) {
        each(kCounter, [this](size_t i) { read_counter(i); });
        stepped = true;
        for (size_t i = 0; i < devices.size(); ++i) {
            const std::vector<uint64_t>& energy = recording.devices[i].counter.energy_mj;
            const bool flat = energy.size() <= first[i] || energy.back() == energy[first[i]];
            if (devices[i].readable(kCounter) && flat) stepped = false;
        }
        if (!stepped) sleep_until(now_ns() + kHuntPause);
    }
}

void PowerSampler::Shared::run() {
    each(kSeries, [this](size_t i) { drain_series(i); });
    each(kPolled, [this](size_t i) { poll(i); });
    hunt_counter_step();
    const int64_t start = now_ns();
    Cadence polled{kPolledPeriod, start};
    Cadence counter{kCounterPeriod, start + kCounterPeriod};
    Cadence series{kSeriesPeriod, start + kSeriesPeriod};
    uint64_t missed = 0;
    while (!stop) {
        if (polled.due(now_ns())) {
            each(kPolled, [this](size_t i) { poll(i); });
            missed += polled.advance(now_ns());
        }
        if (counter.due(now_ns())) {
            each(kCounter, [this](size_t i) { read_counter(i); });
            missed += counter.advance(now_ns());
        }
        if (series.due(now_ns())) {
            each(kSeries, [this](size_t i) { drain_series(i); });
            missed += series.advance(now_ns());
        }
        sleep_until(std::min({polled.next_ns, counter.next_ns, series.next_ns}));
    }
    hunt_counter_step();
    each(kPolled, [this](size_t i) { poll(i); });
    each(kSeries, [this](size_t i) { drain_series(i); });
    {
        const std::lock_guard<std::mutex> lock(mutex);
        recording.missed_ticks = missed;
    }
    done = true;
}

PowerSampler::PowerSampler(std::vector<std::string> uuids) : uuids_(std::move(uuids)) {}

PowerSampler::~PowerSampler() {
    if (shared_) stop();
}

void PowerSampler::start() {
    const std::lock_guard<std::mutex> session(mutex_);
    if (shared_) throw std::logic_error("the sampler is already running");
    auto shared = std::make_shared<Shared>();
    shared->nvml = Nvml::open();
    for (const std::string& uuid : uuids_) {
        Device device;
        device.handle = shared->nvml->device_by_uuid(uuid);
        shared->devices.push_back(device);
        DeviceRecording recorded;
        recorded.info = shared->nvml->describe(device.handle);
        recorded.state = "ok";
        shared->recording.devices.push_back(std::move(recorded));
    }
    shared->latest_mw = std::make_unique<std::atomic<int64_t>[]>(uuids_.size());
    for (size_t i = 0; i < uuids_.size(); ++i) shared->latest_mw[i] = kMissing;
    shared->recording.start_ns = now_ns();
    shared->recording.offsets.measure();
    thread_ = std::thread([shared] { shared->run(); });
    shared_ = std::move(shared);
}

Recording PowerSampler::stop() {
    std::shared_ptr<Shared> shared;
    std::thread thread;
    {
        const std::lock_guard<std::mutex> session(mutex_);
        if (!shared_) throw std::logic_error("the sampler is not running");
        shared.swap(shared_);
        thread.swap(thread_);
    }
    shared->stop = true;
    const int64_t give_up_ns = now_ns() + kStopPatience;
    while (!shared->done && now_ns() < give_up_ns) sleep_until(now_ns() + kStopPause);
    const bool hung = !shared->done;
    if (hung) {
        thread.detach();
    } else {
        thread.join();
    }
    const std::lock_guard<std::mutex> lock(shared->mutex);
    // A copy, because a hung thread may come back and add to its own.
    Recording recording = hung ? shared->recording : std::move(shared->recording);
    const int blamed = shared->calling;
    if (hung && blamed != kNoDevice) recording.devices[static_cast<size_t>(blamed)].state = "stalled";
    recording.end_ns = now_ns();
    recording.offsets.measure();
    return recording;
}

std::vector<int64_t> PowerSampler::latest_power_mw() const {
    std::vector<int64_t> latest(uuids_.size(), kMissing);
    const std::lock_guard<std::mutex> session(mutex_);
    for (size_t i = 0; shared_ && i < latest.size(); ++i) latest[i] = shared_->latest_mw[i];
    return latest;
}

}  // namespace pybench
