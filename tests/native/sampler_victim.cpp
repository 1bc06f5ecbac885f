// Samples into a durable file, as fast as it can, until it is killed. Arguments: the file, then UUIDs.
#include <unistd.h>

#include <cstdio>

#include "power_sampler.h"

int main(int count, char** arguments) {
    pybench::Settings settings;
    settings.file = arguments[1];
    settings.uuids.assign(arguments + 2, arguments + count);
    settings.counter_period_ns = pybench::kMillisecond;
    pybench::PowerSampler sampler(settings);
    sampler.start();
    std::puts("started");
    std::fflush(stdout);
    for (;;) pause();
}
