// What a core can do at most: vector multiply-adds and copies, to judge a kernel's time by.

#include <cstdint>
#include <cstring>

#include "simd.h"

// `rounds` times 12 multiply-adds that do not wait for each other, in every thread; the result keeps them alive.
extern "C" void limits_fma_f32(int64_t rounds, float* result, int64_t threads) {
    using V = simd::Vec<float>;
    constexpr int CHAINS = 12;
#pragma omp parallel for schedule(static) num_threads(static_cast<int>(threads))
    for (int64_t thread = 0; thread < threads; ++thread) {
        V chains[CHAINS], factor(0.5f), term(result[thread]);
        for (int i = 0; i < CHAINS; ++i) chains[i] = V(float(i));
        for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
            for (int i = 0; i < CHAINS; ++i) chains[i] = simd::fma(chains[i], factor, term);
        }
        V all = V::zero();
        for (int i = 0; i < CHAINS; ++i) all = all + chains[i];
        result[thread] = simd::sum(all);
    }
}

// Copies `size` floats `rounds` times, each thread a part of its own.
extern "C" void limits_copy_f32(const float* from, float* to, int64_t size, int64_t rounds, int64_t threads) {
    const int64_t part = size / threads;
#pragma omp parallel for schedule(static) num_threads(static_cast<int>(threads))
    for (int64_t thread = 0; thread < threads; ++thread) {
        for (int64_t round = 0; round < rounds; ++round) {
            std::memcpy(to + thread * part, from + thread * part, part * sizeof(float));
            asm volatile("" ::: "memory");  // each round counts
        }
    }
}
