// Inner products of all pairs of a few rows, with the sums in registers.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "simd.h"

namespace gated {

using simd::Vec;

constexpr int64_t HALF = 8;  // tokens

enum Pairs {
    ALL,             // M[t, s] = readers_t . writers_s
    LOWER,           // the same for s <= t, and 0 for s > t
    DECAYED,         // LOWER, with every writer multiplied by step_{s+1} .. step_t
    DECAYED_BEFORE,  // LOWER, with every writer multiplied by step_{s+1} .. step_{t-1}, and by `own` for t = s
};

template <typename T, Pairs PAIRS, int s>
SIMD_INLINE void products_of_writer(const T* readers, const T* writer, const T* step, const T* own, int64_t N,
                                    T* partial) {
    constexpr int64_t W = Vec<T>::width, first = PAIRS == ALL ? 0 : s;
    Vec<T> sums[HALF];
#pragma GCC unroll 8
    for (int t = 0; t < HALF; t++) sums[t] = Vec<T>::zero();
    for (int64_t n = 0; n < N; n += W) {
        Vec<T> x = simd::in_register(Vec<T>::load(writer + n));
#pragma GCC unroll 8
        for (int t = first; t < HALF; t++) {
            if (PAIRS == DECAYED && t > s) x *= Vec<T>::load(step + t * N + n);
            const Vec<T> factor = PAIRS == DECAYED_BEFORE && t == s ? x * Vec<T>::load(own + n) : x;
            sums[t] = simd::fma(Vec<T>::load(readers + t * N + n), factor, sums[t]);
            if (PAIRS == DECAYED_BEFORE && t > s) x *= Vec<T>::load(step + t * N + n);
        }
    }
#pragma GCC unroll 8
    for (int t = 0; t < HALF; t++) sums[t].store(partial + (t * HALF + s) * W);
}

template <typename T, Pairs PAIRS, int... s>
SIMD_INLINE void products_of_writers(const T* readers, const T* writers, const T* step, const T* own, int64_t N,
                                     T* partial, std::integer_sequence<int, s...>) {
    (products_of_writer<T, PAIRS, s>(readers, writers + s * N, step, own, N, partial), ...);
}

// M (HALF, HALF), in rows with distance `stride`. `readers`, `writers` and `step` are (HALF, N), `own` is (N,). N is a
// number of whole vectors.
template <typename T, Pairs PAIRS>
void pair_products(const T* readers, const T* writers, const T* step, const T* own, int64_t N, T* M, int64_t stride) {
    alignas(64) T partial[HALF * HALF * Vec<T>::width], sums[HALF * HALF];
    products_of_writers<T, PAIRS>(readers, writers, step, own, N, partial, std::make_integer_sequence<int, HALF>());
    simd::sums(partial, HALF * HALF, sums);
    for (int64_t t = 0; t < HALF; t++) std::memcpy((void*)(M + t * stride), sums + t * HALF, HALF * sizeof(T));
}

}  // namespace gated
