// Loops that measure the limits of a processor: multiply-adds in registers, and streams through caches and memory.

#include <cstdint>

#include "streaming_stores.h"
#include "simd.h"

namespace {

using V = simd::Vec<float>;

// Number of independent multiply-adds: more than latency times units of any processor, fewer than its registers.
#if defined(SIMD_AVX512) || defined(__aarch64__)
constexpr int CHAINS = 24;  // of 32 registers
#else
constexpr int CHAINS = 12;  // of 16 registers
#endif

constexpr int64_t BLOCK = 1024;  // floats: one page
constexpr int SUMS = 8;          // vectors of partial sums per block

// Sums one block.
void read(const float* from, V (&sums)[SUMS]) {
    for (int64_t i = 0; i < BLOCK; i += SUMS * V::width)
        for (int j = 0; j < SUMS; ++j) sums[j] += V::load(from + i + j * V::width);
}

// to = a or a + b for one block.
void write(const float* a, const float* b, float* to) {
    for (int64_t i = 0; i < BLOCK; i += V::width) {
        const V x = V::load(a + i);
        (b ? x + V::load(b + i) : x).store(to + i);
    }
}

}  // namespace

// Every thread does `rounds` rounds of CHAINS independent multiply-adds of vectors, x = x / 2 + term. Chain i starts
// from i. result[thread] is the term on entry, and the sum of all lanes of all chains on return. Returns the number of
// scalar multiply-adds per thread.
extern "C" int64_t limits_multiply_adds(int64_t rounds, float* result, int64_t threads) {
#pragma omp parallel for schedule(static) num_threads(static_cast<int>(threads))
    for (int64_t thread = 0; thread < threads; ++thread) {
        V chains[CHAINS], half(0.5f), term(result[thread]);
        for (int i = 0; i < CHAINS; ++i) chains[i] = V(float(i));
        for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
            for (int i = 0; i < CHAINS; ++i) chains[i] = simd::fma(chains[i], half, term);
        }
        V all = V::zero();
        for (int i = 0; i < CHAINS; ++i) all += chains[i];
        result[thread] = simd::sum(all);
    }
    return rounds * CHAINS * V::width;
}

// Streams over arrays of threads * blocks * BLOCK floats, `rounds` times, alternately forward and backward, so each
// sweep starts with data that is still in the caches. Every thread has its own part.
//   to null:  reads a;           result[thread] becomes the sum of the thread's part
//   b null:   writes to = a
//   else:     writes to = a + b
// past: use streaming stores.
extern "C" void limits_stream(const float* a, const float* b, float* to, float* result, int64_t blocks, int64_t rounds,
                              int64_t past, int64_t threads) {
#pragma omp parallel for schedule(static) num_threads(static_cast<int>(threads))
    for (int64_t thread = 0; thread < threads; ++thread) {
        V sums[SUMS];
        for (V& sum : sums) sum = V::zero();
        alignas(64) float block[BLOCK];
        for (int64_t round = 0; round < rounds; ++round) {
            for (int64_t i = 0; i < blocks; ++i) {
                const int64_t at = (thread * blocks + (round % 2 ? blocks - 1 - i : i)) * BLOCK;
                if (!to) {
                    read(a + at, sums);
                    continue;
                }
                write(a + at, b ? b + at : nullptr, past ? block : to + at);
                if (past) simd::write_past(to + at, block, sizeof block);
            }
            simd::fence();
        }
        V all = V::zero();
        for (const V& sum : sums) all += sum;
        result[thread] = simd::sum(all);
    }
}
