#include "session.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "clock.h"

namespace pybench {

namespace {

constexpr std::chrono::milliseconds kCollectPeriod(100);  // until the pollers are merged
constexpr std::chrono::milliseconds kWatchPeriod(250);    // the other GPUs of a hanging poller have 0.6 s
constexpr std::chrono::seconds kAlonePeriod(1);           // a lone GPU delays no other
// A longer call hangs: nobody waits for it, and its poller's other GPUs get a new one.
constexpr int64_t kHangLimit = 300 * kMillisecond;
constexpr int64_t kStopLimit = 800 * kMillisecond;
constexpr int64_t kEndLimit = 100 * kMillisecond;
constexpr int64_t kSnapshotLimit = 500 * kMillisecond;
constexpr int64_t kMeasureLimit = 2 * kSecond;
// Until the pollers are merged, each checks for new GPUs at this period.
constexpr int64_t kMergingSleep = 100 * kMillisecond;
constexpr int64_t kLongestSleep = 2 * kSecond;
constexpr int64_t kPause = 2 * kMillisecond;

bool takes_longer(int64_t call_start_ns, int64_t limit_ns, int64_t now = now_ns()) {
    return call_start_ns != 0 && now - call_start_ns > limit_ns;
}

bool hangs(int64_t call_start_ns, const Patience& patience) {
    return call_start_ns != 0 && patience.waited_ns(call_start_ns) > kHangLimit;
}

}  // namespace

Session::Session(const Settings& settings)
    : nvml_(Nvml::open()),
      blocks_(new GpuBlock[settings.uuids.size()]),
      search_slots_(settings.uuids.size()),
      contention_(settings.uuids.size()),
      recording_(settings.uuids.size()),
      retention_(settings.most_bytes) {
    head_.boot_id = boot_id();
    head_.driver = nvml_->driver_version();
    for (const std::string& uuid : settings.uuids) {
        const auto number = static_cast<uint32_t>(gpus_.size());
        gpus_.push_back(
            std::make_unique<Gpu>(nvml_, uuid, blocks_[number], number, settings.pace, search_slots_, wall_clock_));
    }
}

// Every GPU starts with its own poller, so that none waits for another's first calls. All are assigned before any
// poller looks.
void Session::start() {
    head_.start_ns = now_ns();
    recording_.offsets.push_back(wall_clock_.read());
    for (size_t i = 0; i < gpus_.size(); ++i) gpus_[i]->poller = i;
    try {
        while (pollers_.size() < gpus_.size()) add_poller();
        collector_ = std::thread([this] { collect_and_watch(); });
    } catch (const std::system_error&) {  // no more threads: end the started ones and report
        raise_demand();
        stopping_ = true;
        contention_.give_up();
        notify_pollers();
        Patience patience;
        end_pollers(&patience);
        throw;
    }
}

void Session::add_poller() {
    const size_t number = pollers_.size();
    auto ended = std::make_shared<std::atomic<bool>>(false);
    std::thread thread([self = shared_from_this(), number, ended] {
        self->poll(number);
        *ended = true;
    });
    pollers_.push_back({std::move(thread), ended});
    ++head_.num_pollers;
}

// ---- A poller's thread ----------------------------------------------------------------------------------------------

template <typename Visit>
size_t Session::for_own_gpus(size_t poller, Visit visit) {
    size_t num_own = 0;
    for (const std::unique_ptr<Gpu>& gpu : gpus_) {
        if (gpu->poller != poller) continue;
        const std::lock_guard<std::mutex> hold(gpu->access);
        if (gpu->poller != poller) continue;  // reassigned during its last poller's call
        ++num_own;
        visit(*gpu);
    }
    return num_own;
}

void Session::begin(size_t poller) {
    for_own_gpus(poller, [](Gpu& gpu) { gpu.begun() ? void() : gpu.begin(); });
    const bool first = poller < gpus_.size() && gpus_.size() > 1;
    if (first) contention_.measure([&] { for_own_gpus(poller, [](Gpu& gpu) { gpu.read_counter(); }); });
}

void Session::poll(size_t poller) {
    begin(poller);
    for (bool over = false; !over;) {
        const bool last = stopping_;
        const uint64_t demand = demand_;
        int64_t next_ns = now_ns() + (pollers_merged_ ? kLongestSleep : kMergingSleep);
        bool served = true;
        const size_t num_own = for_own_gpus(poller, [&](Gpu& gpu) {
            if (!gpu.begun()) gpu.begin();
            gpu.visit(demand);
            served = served && gpu.served() == demand;
            next_ns = std::min(next_ns, gpu.next_ns());
        });
        over = num_own == 0 || (last && served);
        if (!over) sleep_until(next_ns, demand, last);
    }
}

// Returns early on a newer demand or at the end.
void Session::sleep_until(int64_t deadline_ns, uint64_t demand, bool last) {
    std::unique_lock<std::mutex> lock(demand_mutex_);
    const std::chrono::steady_clock::time_point deadline{std::chrono::nanoseconds(deadline_ns)};
    demand_changed_.wait_until(lock, deadline, [&] { return demand_ != demand || stopping_ != last; });
}

// ---- The collector's thread: it never calls the driver --------------------------------------------------------------

void Session::collect_and_watch() {
    std::unique_lock<std::mutex> lock(mutex_);
    int64_t latest_ns = INT64_MAX;  // of a check without a standstill
    while (!collected_) {
        collect();
        merge_pollers();
        reassign_from_hung(std::min(now_ns(), latest_ns));
        const std::chrono::milliseconds merged_period = gpus_.size() == 1 ? kAlonePeriod : kWatchPeriod;
        const std::chrono::nanoseconds period = pollers_merged_ ? merged_period : kCollectPeriod;
        latest_ns = now_ns() + period.count() + kMostLate;
        wake_.wait_for(lock, period);
    }
}

void Session::collect() {
    if (handed_over_) return;
    std::vector<Record> records;
    std::vector<uint64_t> ends;
    for (size_t i = 0; i < gpus_.size(); ++i) {
        ends.push_back(blocks_[i].ring.each([&](const Record& record) { records.push_back(record); }));
    }
    for (size_t i = 0; i < gpus_.size(); ++i) blocks_[i].ring.release(ends[i]);
    for (const Record& record : records) recording_.add(record);
    retention_.apply(&recording_);
}

// Once, when it is known whether several pollers help. If calls run in parallel, only after every GPU's grid is known.
void Session::merge_pollers() {
    // Not after stop(): the first poller may have ended already.
    if (stopping_ || pollers_merged_) return;
    if (gpus_.size() > 1 && now_ns() < head_.start_ns + kMeasureLimit) {
        if (!contention_.done()) return;
        search_slots_.allow(contention_.num_concurrent());
        const auto predictable = [](const std::unique_ptr<Gpu>& gpu) { return gpu->predictable(); };
        if (contention_.num_concurrent() > 1 && !std::all_of(gpus_.begin(), gpus_.end(), predictable)) return;
    }
    if (contention_.done() && contention_.one_thread_will_do()) {
        for (const std::unique_ptr<Gpu>& gpu : gpus_) gpu->poller = 0;
        search_slots_.allow(1);
        head_.num_pollers = 1;
    }
    pollers_merged_ = true;  // last: who sees it has all its GPUs
}

// Gives the other GPUs of a hanging poller to a new one.
void Session::reassign_from_hung(int64_t now) {
    for (const std::unique_ptr<Gpu>& hung : gpus_) {
        if (!takes_longer(hung->call_start_ns(), kHangLimit, now)) continue;
        const size_t former = hung->poller, number = pollers_.size();
        const auto give = [&](size_t from, size_t to) {
            size_t num_given = 0;
            for (const std::unique_ptr<Gpu>& gpu : gpus_) {
                if (gpu == hung || gpu->poller != from) continue;
                gpu->poller = to;
                ++num_given;
            }
            return num_given;
        };
        if (give(former, number) == 0) continue;
        try {
            add_poller();
        } catch (const std::system_error&) {
            give(number, former);  // no more threads: they wait for the call to return
        }
    }
}

// ---- The caller's thread --------------------------------------------------------------------------------------------

uint64_t Session::raise_demand() {
    const uint64_t demand = ++demand_;
    notify_pollers();
    return demand;
}

void Session::notify_pollers() {
    demand_mutex_.lock();  // no poller is between its check and its sleep
    demand_mutex_.unlock();
    demand_changed_.notify_all();
}

void Session::anchor() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        retention_.mark(now_ns());
    }
    raise_demand();
}

// Does not wait for a GPU that certainly hangs. Waits for the others of its poller, which get a new one.
void Session::wait_for(uint64_t demand, int64_t limit_ns, Patience* patience) const {
    const auto open = [&](const std::unique_ptr<Gpu>& gpu) {
        const int64_t call_start_ns = gpu->call_start_ns();
        return (gpu->served() < demand || takes_longer(call_start_ns, kStall)) && !hangs(call_start_ns, *patience);
    };
    while (std::any_of(gpus_.begin(), gpus_.end(), open) && patience->waited_ns() < limit_ns) patience->pause(kPause);
}

void Session::conclude(Recording* recording, int64_t hang_ns, const Patience& patience) {
    recording->offsets.push_back(wall_clock_.read());
    recording->conclude(head_, blocks_.get(), now_ns(), [&](int64_t call_start_ns) {
        return takes_longer(call_start_ns, hang_ns) && hangs(call_start_ns, patience);
    });
}

Recording Session::stop() {
    const uint64_t demand = raise_demand();
    stopping_ = true;  // after the demand, so that pollers meet the demand first
    notify_pollers();
    contention_.give_up();
    Patience patience;
    wait_for(demand, kStopLimit, &patience);
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        collected_ = true;
    }
    wake_.notify_one();
    collector_.join();
    end_pollers(&patience);
    const std::lock_guard<std::mutex> lock(mutex_);
    collect();
    conclude(&recording_, kHangLimit, patience);
    handed_over_ = true;
    return std::move(recording_);
}

// Pollers in a hanging call end by themselves.
void Session::end_pollers(Patience* patience) {
    for (const std::unique_ptr<Gpu>& gpu : gpus_) gpu->abandoned = true;
    const int64_t limit_ns = patience->waited_ns() + kEndLimit;
    for (Poller& poller : pollers_) {
        while (!*poller.ended && patience->waited_ns() < limit_ns) patience->pause(kPause / 10);
        *poller.ended ? poller.thread.join() : poller.thread.detach();
    }
}

Recording Session::snapshot(int64_t since_ns, bool search, int64_t until_ns) {
    Patience patience;
    wait_for(search ? raise_demand() : 0, kSnapshotLimit, &patience);
    const std::lock_guard<std::mutex> lock(mutex_);
    collect();
    if (handed_over_) throw std::logic_error("the sampler is not running");
    Recording copy = recording_.between(since_ns, until_ns);
    conclude(&copy, kStall, patience);
    return copy;
}

std::vector<int64_t> Session::latest_power_mw() {
    std::vector<int64_t> latest;
    for (size_t i = 0; i < gpus_.size(); ++i) {
        const bool stale = takes_longer(gpus_[i]->call_start_ns(), kHangLimit);
        latest.push_back(stale ? kMissing : blocks_[i].latest_mw.load());
    }
    return latest;
}

}  // namespace pybench
