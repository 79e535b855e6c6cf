// Vectors over rows with any number of channels.
#pragma once

#include "simd.h"

namespace simd {

// A full vector of channels, or the last n channels of a row.
template <typename T, bool FULL>
struct Lanes {
    int64_t n;

    SIMD_INLINE Vec<T> load(const T* p) const { return FULL ? Vec<T>::load(p) : Vec<T>::load_n(p, n); }
    SIMD_INLINE void store(T* p, Vec<T> v) const { FULL ? v.store(p) : v.store_n(p, n); }
    SIMD_INLINE void add(T* p, Vec<T> v) const { store(p, load(p) + v); }
};

// Calls body(first channel, lanes) for every vector of a row of D channels.
template <typename T, typename Body>
SIMD_INLINE void for_each_vector(int64_t D, Body body) {
    constexpr int64_t W = Vec<T>::width;
    int64_t d = 0;
    for (; d + W <= D; d += W) body(d, Lanes<T, true>{W});
    if (d < D) body(d, Lanes<T, false>{D - d});
}

}  // namespace simd
