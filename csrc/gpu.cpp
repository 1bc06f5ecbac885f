#include "gpu.h"

#include <algorithm>

namespace pybench {

namespace {

constexpr int64_t kPolledPeriod = 100 * kMillisecond;  // as often as the fields change
constexpr int64_t kSlowPeriod = kSecond;
// With a longer period the counter is read around its steps.
constexpr int64_t kSparse = kSecond;
// With steps predictable for this long, searches are too rare to delay other GPUs.
constexpr int64_t kSettledSpan = kSecond;
// Wait for the driver's next sample, so that the series covers both sides of the publication.
constexpr int64_t kNextSample = 45 * kMillisecond;

constexpr uint32_t bit(Capability capability) { return 1U << capability; }
constexpr uint32_t kPolledMask = bit(kInstant) | bit(kAverage) | bit(kMemory);
constexpr uint32_t kSlowMask =
    bit(kTemperature) | bit(kSmClock) | bit(kMemoryClock) | bit(kUtilization) | bit(kClockEventReasons);

// On multiples of the period, so that one wake-up serves all GPUs.
Cadence on_grid(int64_t period_ns, int64_t now) { return {period_ns, (now / period_ns + 1) * period_ns}; }

}  // namespace

Gpu::Gpu(std::shared_ptr<Nvml> nvml, const std::string& uuid, GpuBlock& block, uint32_t number, Pace pace,
         SearchSlots& search_slots, WallClock& wall_clock)
    : nvml_(std::move(nvml)),
      driver_(nvml_->driver_version()),
      block_(block),
      number_(number),
      search_slots_(search_slots),
      wall_clock_(wall_clock),
      capabilities_(remembered_missing(uuid, driver_)),
      polled_beside_series_ns_(pace.polled_ns),
      counter_{pace.counter_ns} {
    block_.uuid = uuid;
    try {
        handle_ = nvml_->gpu_by_uuid(uuid);
        const GpuInfo info = nvml_->describe(handle_);
        block_.name = info.name;
        block_.index = info.index;
    } catch (const NvmlError& error) {
        if (means_no_such_gpu(static_cast<nvmlReturn_t>(error.code))) throw;
        capabilities_.refuse(static_cast<nvmlReturn_t>(error.code));
        ++block_.failed_calls;
        publish();
    }
}

// Every driver call goes through here, so that another thread sees a hang. A call that returns after the session's end
// is the last: another session may read the GPU by then.
template <typename Read>
nvmlReturn_t Gpu::call(Read read) {
    if (abandoned) return NVML_ERROR_TIMEOUT;
    const int64_t start_ns = now_ns();
    block_.call_start_ns = start_ns;
    const nvmlReturn_t code = read();
    const int64_t end_ns = now_ns();
    if (end_ns - start_ns > kStall) push(StallRow{start_ns, end_ns});
    block_.call_start_ns = 0;
    capabilities_.watch(code);
    if (code != NVML_SUCCESS && !means_missing(code)) ++block_.failed_calls;
    return code;
}

template <typename Row>
void Gpu::push(const Row& row) {
    if (!abandoned) block_.ring.push(number_, row);
}

void Gpu::note(Capability capability, nvmlReturn_t code) {
    if (abandoned) return;  // not a code of the driver
    capabilities_.note(capability, code);
    if (capabilities_.lost()) publish();
}

bool Gpu::wants(uint32_t any) const {
    for (unsigned i = 0; i < kNumCapabilities; ++i) {
        if (any >> i & 1U && capabilities_.wanted(static_cast<Capability>(i))) return true;
    }
    return false;
}

void Gpu::publish() {
    block_.state = static_cast<uint32_t>(capabilities_.state());
    block_.capabilities = capabilities_.working();
    if (capabilities_.lost()) block_.latest_mw = kMissing;
}

void Gpu::begin() {
    if (!capabilities_.refused()) probe_identity();
    drain_series();
    poll();
    read_slow();
    read_counter();
    publish();
    if (!abandoned && !capabilities_.refused()) remember_missing(block_.uuid, driver_, capabilities_.missing());
    begun_ = true;
}

void Gpu::pace_polls(const OffsetRow& now) {
    const int64_t period_ns = samples_.shows_power(kPolledPeriod, now) ? polled_beside_series_ns_ : kPolledPeriod;
    if (polled_.next_ns == 0 || polled_.period_ns != period_ns) polled_ = on_grid(period_ns, now_ns());
}

void Gpu::probe_identity() {
    int64_t value = kMissing;
    if (call([&] { return nvml_->mig_enabled(handle_, &value); }) == NVML_SUCCESS) block_.mig = value;
    if (call([&] { return nvml_->on_shared_board(handle_, &value); }) == NVML_SUCCESS) block_.shared_board = value;
    std::vector<PowerField> module = {{NVML_FI_DEV_POWER_INSTANT, NVML_POWER_SCOPE_MODULE}};
    const nvmlReturn_t code = call([&] { return nvml_->power_fields(handle_, &module); });
    block_.module_scope = code == NVML_SUCCESS && module[0].code == NVML_SUCCESS ? 1 : 0;
}

void Gpu::read_counter() {
    if (!capabilities_.wanted(kCounter)) return;
    uint64_t energy_mj = 0;
    const int64_t before_ns = now_ns();
    const nvmlReturn_t code = call([&] { return nvml_->energy_mj(handle_, &energy_mj); });
    const int64_t after_ns = now_ns();
    note(kCounter, code);
    if (code != NVML_SUCCESS) return search_.failed(after_ns);
    const CounterRow reading{before_ns, after_ns, energy_mj};
    push(reading);
    search_.add_reading(reading);
}

void Gpu::drain_series() {
    if (!capabilities_.wanted(kSeries)) return;
    std::vector<PowerSample> samples;
    const uint64_t last_seen_us = samples_.last_seen_us(wall_clock_.read());
    note(kSeries, call([&] { return nvml_->power_samples(handle_, last_seen_us, &num_samples_, &samples); }));
    const OffsetRow now = wall_clock_.read();
    push(now);
    for (const PowerSample& sample : samples_.unseen(samples, now)) {
        push(SeriesRow{sample.realtime_us * 1000, sample.power_mw});
    }
    if (scheduled_) return pace_polls(now);
    samples_.measure(samples);
    series_.period_ns = samples_.drain_period_ns(num_samples_, kPolledPeriod).value_or(series_.period_ns);
}

void Gpu::poll() {
    PolledRow row{now_ns(), kMissing, kMissing, kMissing};
    poll_fields(&row);
    if (average_by_usage_) {
        row.average_mw = reading(kAverage, [this](int64_t* mw) { return nvml_->power_usage_mw(handle_, mw); });
    }
    if (capabilities_.lost()) return;
    block_.latest_mw = row.instant_mw != kMissing ? row.instant_mw : row.average_mw;
    if (row.instant_mw != kMissing || row.average_mw != kMissing || row.memory_mw != kMissing) push(row);
    publish();
}

void Gpu::poll_fields(PolledRow* row) {
    struct FieldRequest {
        Capability capability;
        unsigned field, scope;
        int64_t* value;
    };
    const FieldRequest requests[] = {{kInstant, NVML_FI_DEV_POWER_INSTANT, NVML_POWER_SCOPE_GPU, &row->instant_mw},
                                     {kAverage, NVML_FI_DEV_POWER_AVERAGE, NVML_POWER_SCOPE_GPU, &row->average_mw},
                                     {kMemory, NVML_FI_DEV_POWER_AVERAGE, NVML_POWER_SCOPE_MEMORY, &row->memory_mw}};
    std::vector<const FieldRequest*> requested;
    std::vector<PowerField> fields;
    for (const FieldRequest& request : requests) {
        if (!capabilities_.wanted(request.capability) || (request.capability == kAverage && average_by_usage_))
            continue;
        requested.push_back(&request);
        fields.push_back({request.field, request.scope});
    }
    if (fields.empty()) return;
    const nvmlReturn_t code = call([&] { return nvml_->power_fields(handle_, &fields); });
    for (size_t i = 0; i < requested.size(); ++i) {
        const nvmlReturn_t own = code == NVML_SUCCESS ? fields[i].code : code;
        note(requested[i]->capability, own);
        if (own == NVML_SUCCESS) *requested[i]->value = fields[i].power_mw;
    }
    if (!average_by_usage_ && !capabilities_.lost() && capabilities_.missing() & bit(kAverage)) {
        average_by_usage_ = true;
        capabilities_.note(kAverage, NVML_ERROR_UNKNOWN);  // the older call has not answered yet
    }
}

template <typename Read>
int64_t Gpu::reading(Capability capability, Read read) {
    int64_t value = kMissing;
    if (!capabilities_.wanted(capability)) return kMissing;
    note(capability, call([&] { return read(&value); }));
    return value;
}

void Gpu::read_slow() {
    if (!wants(kSlowMask)) return;
    SlowRow row{};
    row.t_ns = now_ns();
    row.temperature_c = reading(kTemperature, [this](int64_t* c) { return nvml_->temperature_c(handle_, c); });
    row.sm_clock_mhz =
        reading(kSmClock, [this](int64_t* mhz) { return nvml_->clock_mhz(handle_, NVML_CLOCK_SM, mhz); });
    row.memory_clock_mhz =
        reading(kMemoryClock, [this](int64_t* mhz) { return nvml_->clock_mhz(handle_, NVML_CLOCK_MEM, mhz); });
    row.gpu_utilization_percent =
        reading(kUtilization, [this](int64_t* percent) { return nvml_->gpu_utilization_percent(handle_, percent); });
    row.clock_event_reasons =
        reading(kClockEventReasons, [this](int64_t* mask) { return nvml_->clock_event_reasons(handle_, mask); });
    if (!capabilities_.lost()) push(row);
    publish();
}

void Gpu::visit(uint64_t demand) {
    if (!scheduled_) {
        const int64_t now = now_ns();
        if (counter_.period_ns < kSparse) counter_ = on_grid(counter_.period_ns, now);
        series_ = on_grid(series_.period_ns, now);
        polled_ = {};
        pace_polls(wall_clock_.read());
        slow_ = on_grid(kSlowPeriod, now);
        scheduled_ = true;
    }
    if (demand != wanted_) begin_serving(demand);
    keep_counter();
    keep(&polled_, kPolledMask, [this] { poll(); });
    keep(&series_, bit(kSeries), [this] { drain_series(); });
    keep(&slow_, kSlowMask, [this] { read_slow(); });
    if (served_ != wanted_) settle();
}

void Gpu::keep_counter() {
    if (!has_counter()) {
        predictable_ = true;
        return;
    }
    if (counter_.period_ns < kSparse) {
        keep(&counter_, bit(kCounter), [this] { read_counter(); });
    } else if (!search_.on() && now_ns() >= counter_due_ns() &&
               (predictable_ || search_slots_.take(number_, now_ns()))) {
        begin_search();
        unrequested_.spend(now_ns());
    }
    if (search_.on() && now_ns() >= search_.next_ns()) read_counter();
    predictable_ = search_.known() && (predictable_ || search_.predictable_until_ns() > now_ns() + kSettledSpan);
    if (!search_.on() && (predictable_ || !search_.known())) search_slots_.release(number_);
}

int64_t Gpu::counter_due_ns() const {
    if (counter_.period_ns < kSparse) return counter_.next_ns;
    return std::min(counter_.next_ns, std::max(search_.predictable_until_ns(), unrequested_.next_ns()));
}

void Gpu::begin_search() {
    const int64_t now = now_ns();
    if (counter_.period_ns >= kSparse) counter_.next_ns = now + counter_.period_ns;
    search_.begin(now);
}

void Gpu::begin_serving(uint64_t demand) {
    wanted_ = demand;
    settled_ns_.reset();
    read_slow();  // a window may be shorter than the period
    begin_search();
}

// After the step, waits for the series' next sample.
void Gpu::settle() {
    if (!has_counter()) search_.give_up();
    if (search_.on()) return settled_ns_.reset();
    if (!settled_ns_) settled_ns_ = now_ns() + (search_.found() ? kNextSample : 0);
    if (now_ns() < *settled_ns_) return;
    poll();
    drain_series();
    served_ = wanted_;
}

template <typename Read>
void Gpu::keep(Cadence* cadence, uint32_t capabilities, Read read) {
    if (!cadence->due(now_ns()) || !wants(capabilities)) return;
    read();
    block_.missed_ticks += cadence->advance(now_ns());
}

int64_t Gpu::next_ns() const {
    int64_t next = served_ != wanted_ && settled_ns_ ? *settled_ns_ : INT64_MAX;
    if (wants(kPolledMask)) next = std::min(next, polled_.next_ns);
    if (has_counter() && search_.on()) next = std::min(next, search_.next_ns());
    // Due readings wait for their turn.
    if (has_counter() && !search_.on() && counter_due_ns() > now_ns()) next = std::min(next, counter_due_ns());
    if (wants(bit(kSeries))) next = std::min(next, series_.next_ns);
    if (wants(kSlowMask)) next = std::min(next, slow_.next_ns);
    return next;
}

}  // namespace pybench
