// Sums of parts of a gradient that were computed by different threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "threads.h"

namespace partial_sums {

constexpr int64_t CHUNK = 64;  // totals that are summed together, in vectors

// total[i] = the sum over units of parts[unit * size + i], in double and in the order of the units.
template <typename T>
void add_up(const T* parts, int64_t units, int64_t size, T* total, int64_t threads) {
    threads::for_each((size + CHUNK - 1) / CHUNK, threads, [&](int64_t chunk) {
        const int64_t begin = chunk * CHUNK, n = std::min(CHUNK, size - begin);
        double sums[CHUNK] = {};
        for (int64_t unit = 0; unit < units; ++unit) {
            for (int64_t i = 0; i < n; ++i) sums[i] += parts[unit * size + begin + i];
        }
        for (int64_t i = 0; i < n; ++i) total[begin + i] = static_cast<T>(sums[i]);
    });
}

}  // namespace partial_sums
