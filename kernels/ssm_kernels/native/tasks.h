// Splits a scan with groups of heads, which share queries and keys, into tasks for single threads. Sums the parts of a
// gradient from several tasks in a fixed order.
#pragma once

#include "threads.h"

namespace tasks {

// A backward pass splits groups into parts until there are this many tasks. The number does not depend on the threads,
// because the order of sums depends on it.
constexpr int64_t ENOUGH = 8;

// All or some heads of one group of one sequence: the work of one thread at a time.
struct Task {
    int64_t b, group, part, first_head, heads;
};

inline Task task_of(int64_t index, int64_t parts, int64_t G, int64_t sharing) {
    const int64_t part = index % parts, group = index / parts % G, b = index / parts / G;
    const int64_t from = part * sharing / parts, to = (part + 1) * sharing / parts;
    return {b, group, part, group * sharing + from, to - from};
}

inline int64_t parts_for(int64_t wanted, int64_t groups, int64_t sharing) {
    return std::min(sharing, (wanted + groups - 1) / groups);
}

// to[i] = the sum over p of from[p * n + i], in order.
template <typename T>
void add_up(const T* from, int64_t parts, int64_t n, T* to, int64_t threads) {
    threads::for_each(n, threads, [&](int64_t i) {
        T sum = from[i];
        for (int64_t p = 1; p < parts; p++) sum += from[p * n + i];
        to[i] = sum;
    });
}

}  // namespace tasks
