#include "session.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "clock.h"

namespace pybench {

namespace {

constexpr std::chrono::milliseconds kCollectPeriod(100);
// A call that takes longer than this no longer holds up the GPUs that were to be read after it.
constexpr int64_t kHangPatience = 300 * kMillisecond;
constexpr int64_t kStopPatience = 800 * kMillisecond;
constexpr int64_t kEndPatience = 100 * kMillisecond;
constexpr int64_t kSnapshotPatience = 500 * kMillisecond;
constexpr int64_t kMeasurePatience = 2 * kSecond;
constexpr int64_t kLongestSleep = 100 * kMillisecond;
constexpr int64_t kPause = 2 * kMillisecond;

std::string boot_id() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    std::getline(file, id);
    return id;
}

}  // namespace

Session::Session(const Settings& settings)
    : nvml_(Nvml::open()),
      blocks_(settings.file, settings.uuids.size()),
      turns_(settings.uuids.size()),
      contention_(settings.uuids.size()),
      recording_(settings.uuids.size()) {
    std::strncpy(blocks_.head().boot_id, boot_id().c_str(), sizeof FileHead::boot_id - 1);
    try {
        open_gpus(settings);
    } catch (...) {
        blocks_.discard();
        throw;
    }
}

void Session::open_gpus(const Settings& settings) {
    for (const std::string& uuid : settings.uuids) {
        const auto number = static_cast<uint32_t>(gpus_.size());
        gpus_.push_back(
            std::make_unique<Gpu>(nvml_, uuid, blocks_.gpu(number), number, settings.counter_period_ns, turns_));
    }
}

// Every GPU begins with a poller of its own, so that none waits for another's first calls.
void Session::start() {
    blocks_.head().start_ns = now_ns();
    recording_.offsets.push_back({now_ns(), realtime_offset_ns()});
    for (size_t i = 0; i < gpus_.size(); ++i) {
        gpus_[i]->poller = i;
        add_poller();
    }
    collector_ = std::thread([this] { collect_and_watch(); });
}

void Session::add_poller() {
    const size_t number = pollers_.size();
    auto ended = std::make_shared<std::atomic<bool>>(false);
    std::thread thread([self = shared_from_this(), number, ended] {
        self->poll(number);
        *ended = true;
    });
    pollers_.push_back({std::move(thread), ended});
    ++blocks_.head().num_pollers;
}

// ---- A poller's thread ----------------------------------------------------------------------------------------------

template <typename Visit>
size_t Session::each_own(size_t poller, Visit visit) {
    size_t num_own = 0;
    for (const std::unique_ptr<Gpu>& gpu : gpus_) {
        if (gpu->poller != poller) continue;
        const std::lock_guard<std::mutex> turn(gpu->turn);
        if (gpu->poller != poller) continue;  // given away while its last poller was still in it
        ++num_own;
        visit(*gpu);
    }
    return num_own;
}

void Session::begin(size_t poller) {
    each_own(poller, [](Gpu& gpu) { gpu.begun() ? void() : gpu.begin(); });
    const bool first = poller < gpus_.size() && gpus_.size() > 1;
    if (first) contention_.measure([&] { each_own(poller, [](Gpu& gpu) { gpu.read_counter(); }); });
}

void Session::poll(size_t poller) {
    begin(poller);
    for (bool over = false; !over;) {
        const bool last = stopping_;
        const uint64_t demand = demand_;
        int64_t next_ns = now_ns() + kLongestSleep;
        bool met = true;
        const size_t num_own = each_own(poller, [&](Gpu& gpu) {
            if (!gpu.begun()) gpu.begin();
            gpu.visit(demand);
            met = met && gpu.met() == demand;
            next_ns = std::min(next_ns, gpu.next_ns());
        });
        over = num_own == 0 || (last && met);
        if (!over) sleep_until(next_ns, demand, last);
    }
}

// Or until something is asked for that was not when demand was, or the end that was not.
void Session::sleep_until(int64_t deadline_ns, uint64_t demand, bool last) {
    std::unique_lock<std::mutex> lock(bell_mutex_);
    const std::chrono::steady_clock::time_point deadline{std::chrono::nanoseconds(deadline_ns)};
    bell_.wait_until(lock, deadline, [&] { return demand_ != demand || stopping_ != last; });
}

// ---- The collector's thread: it never calls the driver --------------------------------------------------------------

void Session::collect_and_watch() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!collected_) {
        collect();
        share_out();
        part_from_hung();
        blocks_.head().end_ns = now_ns();
        wake_.wait_for(lock, kCollectPeriod);
    }
}

void Session::collect() {
    if (handed_over_) return;
    std::vector<Record> records;
    std::vector<uint64_t> ends;
    for (size_t i = 0; i < gpus_.size(); ++i) {
        ends.push_back(blocks_.gpu(i).ring.each([&](const Record& record) { records.push_back(record); }));
    }
    blocks_.append(records);
    for (size_t i = 0; i < gpus_.size(); ++i) blocks_.gpu(i).ring.release(ends[i]);
    for (const Record& record : records) recording_.add(record);
}

// Where calls run side by side, not before each GPU's rhythm was found by a thread of its own.
bool Session::may_share_out() {
    if (gpus_.size() < 2 || now_ns() >= blocks_.head().start_ns + kMeasurePatience) return true;
    if (!contention_.done()) return false;
    turns_.allow(contention_.num_side_by_side());
    const auto attuned = [](const std::unique_ptr<Gpu>& gpu) { return gpu->attuned(); };
    return contention_.num_side_by_side() == 1 || std::all_of(gpus_.begin(), gpus_.end(), attuned);
}

// Once, when it is known whether several pollers gain anything.
void Session::share_out() {
    if (shared_out_ || !may_share_out()) return;
    shared_out_ = true;
    if (!contention_.done() || !contention_.one_thread_will_do()) return;
    for (const std::unique_ptr<Gpu>& gpu : gpus_) gpu->poller = 0;
    turns_.allow(1);
    blocks_.head().num_pollers = 1;
}

// The other GPUs of a poller that hangs in a call are given to a new one.
void Session::part_from_hung() {
    const int64_t now = now_ns();
    for (const std::unique_ptr<Gpu>& hung : gpus_) {
        if (!hung->hangs(now, kHangPatience)) continue;
        const size_t number = pollers_.size();
        size_t num_freed = 0;
        for (const std::unique_ptr<Gpu>& gpu : gpus_) {
            if (gpu == hung || gpu->poller != hung->poller) continue;
            gpu->poller = number;
            ++num_freed;
        }
        if (num_freed > 0) add_poller();
    }
}

// ---- The caller's thread --------------------------------------------------------------------------------------------

uint64_t Session::ask() {
    const uint64_t demand = ++demand_;
    ring();
    return demand;
}

void Session::ring() {
    bell_mutex_.lock();  // so that no poller is between its look and its sleep
    bell_mutex_.unlock();
    bell_.notify_all();
}

void Session::anchor() { ask(); }

// A GPU that hangs is not waited for; those behind it are, as they will be parted from it.
void Session::wait_for(uint64_t demand, int64_t give_up_ns) const {
    const auto open = [&](const std::unique_ptr<Gpu>& gpu) {
        return gpu->met() < demand && !gpu->hangs(now_ns(), kHangPatience);
    };
    while (std::any_of(gpus_.begin(), gpus_.end(), open) && now_ns() < give_up_ns)
        pybench::sleep_until(now_ns() + kPause);
}

Recording Session::stop() {
    const uint64_t demand = ask();
    stopping_ = true;  // after the demand: who sees this one meets that one first
    ring();
    contention_.give_up();
    wait_for(demand, now_ns() + kStopPatience);
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        collected_ = true;
    }
    wake_.notify_one();
    collector_.join();
    end_pollers();
    const std::lock_guard<std::mutex> lock(mutex_);
    collect();
    recording_.offsets.push_back({now_ns(), realtime_offset_ns()});
    blocks_.head().end_ns = now_ns();
    recording_.conclude(blocks_.head(), &blocks_.gpu(0), blocks_.head().end_ns, kHangPatience);
    handed_over_ = true;
    return std::move(recording_);
}

// Those that hang in a call, or wait for one that does, are left to end by themselves.
void Session::end_pollers() {
    for (const std::unique_ptr<Gpu>& gpu : gpus_) gpu->abandoned = true;
    const int64_t give_up_ns = now_ns() + kEndPatience;
    for (Poller& poller : pollers_) {
        while (!*poller.ended && now_ns() < give_up_ns) pybench::sleep_until(now_ns() + kPause / 10);
        *poller.ended ? poller.thread.join() : poller.thread.detach();
    }
}

Recording Session::snapshot() {
    const int64_t give_up_ns = now_ns() + kSnapshotPatience;
    wait_for(ask(), give_up_ns);
    const std::lock_guard<std::mutex> lock(mutex_);
    collect();
    if (handed_over_) throw std::logic_error("the sampler is not running");
    Recording copy = recording_;
    copy.offsets.push_back({now_ns(), realtime_offset_ns()});
    copy.conclude(blocks_.head(), &blocks_.gpu(0), now_ns(), kSecond);
    return copy;
}

std::vector<int64_t> Session::latest_power_mw() {
    std::vector<int64_t> latest;
    for (size_t i = 0; i < gpus_.size(); ++i) {
        const bool stale = gpus_[i]->hangs(now_ns(), kHangPatience);
        latest.push_back(stale ? kMissing : blocks_.gpu(i).latest_mw.load());
    }
    return latest;
}

}  // namespace pybench
