// Searches that are allowed at once, and how many more in the ten minutes after, on a clock that began so many seconds
// ago.
#include <cstdio>
#include <cstdlib>

#include "search_limits.h"

using namespace pybench;

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    const int64_t begun_ns = std::atoll(argv[1]) * kSecond;
    SearchBudget budget;
    int at_once = 0, later = 0;
    for (; budget.next_ns() <= begun_ns; ++at_once) budget.spend(begun_ns);
    for (int64_t now = begun_ns; now < begun_ns + 600 * kSecond; now += kSecond) {
        if (budget.next_ns() > now) continue;
        budget.spend(now);
        ++later;
    }
    std::printf("%d %d\n", at_once, later);
    return 0;
}
