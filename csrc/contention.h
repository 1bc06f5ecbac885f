// Do driver calls about different GPUs run side by side, or one after the other? Then threads gain nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "patience.h"

namespace pybench {

class Contention {
  public:
    explicit Contention(size_t num_threads) : num_threads_(num_threads) {}

    // Called once by each thread: times read() beside the other threads', then alone. A thread that never comes, or
    // hangs, holds the others up for a fraction of a second only, and then nothing is known.
    template <typename Read>
    void measure(Read read) {
        Patience patience;
        const auto wait_until = [&](auto condition) {
            while (!condition()) {
                if (given_up_ || patience.waited_ns() >= kLimit) return false;
                patience.pause(kPause);
            }
            return true;
        };
        ++arrived_;
        if (!wait_until([this] { return arrived_ == num_threads_; })) return;
        for (int i = 0; i < kReads; ++i) concurrent_ns_ += timed(read);
        ++through_;
        if (!wait_until([this] { return through_ == num_threads_; })) return;
        if (!wait_until([this] { return !busy_.test_and_set(); })) return;
        for (int i = 0; i < kReads; ++i) alone_ns_ += timed(read);
        busy_.clear();
        ++done_;
        wait_until([this] { return done(); });
    }

    // Lets every thread go on at once.
    void give_up() { given_up_ = true; }

    bool done() const { return done_ == num_threads_; }

    // True also where one thread reads every GPU well within the shortest period: each thread costs its wake-ups.
    bool one_thread_will_do() const {
        return alone_ns_ < kShort * kReads || slowdown() > (1.0 + static_cast<double>(num_threads_)) / 2;
    }

    // How many threads can read at once without being held up, at least one.
    size_t num_concurrent() const {
        return std::max<size_t>(static_cast<size_t>(static_cast<double>(num_threads_) / slowdown()), 1);
    }

  private:
    static constexpr int kReads = 3;
    static constexpr int64_t kShort = 25 * kMillisecond;  // for one read of every GPU
    static constexpr int64_t kLimit = 600 * kMillisecond;
    static constexpr int64_t kPause = kMillisecond / 5;

    double slowdown() const {
        return std::max(static_cast<double>(concurrent_ns_) / static_cast<double>(std::max<int64_t>(alone_ns_, 1)),
                        1.0);
    }

    template <typename Read>
    static int64_t timed(Read read) {
        const int64_t before_ns = now_ns();
        read();
        return now_ns() - before_ns;
    }

    const size_t num_threads_;
    std::atomic<size_t> arrived_{0}, through_{0}, done_{0};
    std::atomic<int64_t> concurrent_ns_{0}, alone_ns_{0};
    std::atomic<bool> given_up_{false};
    std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
};

}  // namespace pybench
