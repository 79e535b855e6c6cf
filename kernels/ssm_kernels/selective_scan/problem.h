// Shared by the forward and the backward of the selective scan: their arguments, and the preparation of a chunk.
//
// Sizes: B batch, T length, D channels, N states. Lanes are channels. A "block" is one vector of channels, and its
// states have the layout (N, width), one vector per state. Time is split into chunks. A chunk processes one block after
// the other, so the chunk's B and C stay in the cache.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <numeric>

#include "threads.h"

namespace selective_scan {

using simd::Vec;

constexpr int64_t CHUNK = 16;   // steps; the backward uses the saved states at their starts
// Number of states that a pass over a chunk keeps in registers, and number of decays that are computed together.
#if defined(SIMD_AVX512)
constexpr int FORWARD_STATES = 16, BACKWARD_STATES = 8, SIDE_BY_SIDE = 4;
#elif defined(SIMD_AVX2)
constexpr int FORWARD_STATES = 4, BACKWARD_STATES = 4, SIDE_BY_SIDE = 2;
#else
constexpr int FORWARD_STATES = 4, BACKWARD_STATES = 4, SIDE_BY_SIDE = 4;
#endif
constexpr int64_t PADDING = 16;  // channels are padded to a multiple of this in buffers that Python allocates

// Rows of a (B, T, x) tensor whose last axis is contiguous.
template <typename T> struct Rows {
    T* data;
    int64_t batch_stride, step_stride;
    SIMD_INLINE T* at(int64_t b, int64_t t) const { return data + b * batch_stride + t * step_stride; }
};

template <typename T> struct Problem {
    int64_t batch, length, channels, states;
    bool softplus;
    Rows<const T> u, dt, z, B, C;  // z may be null
    const T *A, *D, *bias, *h0;    // contiguous; D, bias and h0 may be null
    const uint8_t* resets;         // (B, T) or null

    static constexpr int64_t W = Vec<T>::width;
    int64_t chunks() const { return (length + CHUNK - 1) / CHUNK; }
    int64_t blocks() const { return (channels + W - 1) / W; }
    int64_t padded() const { return (channels + PADDING - 1) / PADDING * PADDING; }
    int64_t lanes(int64_t block) const { return std::min(W, channels - block * W); }
    // Number of independent groups of blocks, enough for 64 threads. It depends only on the shape, because the rounding
    // of sums over channels must not depend on the threads. Smaller groups need more sums over lanes in the backward.
    int64_t groups() const {
        const int64_t smallest = batch < 8 ? 32 : 128;  // channels
        const int64_t sequences = std::max<int64_t>(1, batch);
        return std::max<int64_t>(1, std::min(channels / smallest, (64 + sequences - 1) / sequences));
    }
    int64_t first_block(int64_t group) const { return group * blocks() / groups(); }
    // Number of parts of a sequence that threads share. A part is one or more groups. It reads a piece of each row, and
    // larger pieces are faster. So there are only enough parts for equal work.
    int64_t parts(int64_t threads) const {
        const int64_t t = std::max<int64_t>(1, threads);
        return std::min(groups(), t / std::gcd(batch, t));
    }
    int64_t first_group(int64_t part, int64_t parts) const { return part * groups() / parts; }
    bool resets_at(int64_t b, int64_t t) const { return resets && resets[b * length + t]; }
};

// Prefetches the rows of the next chunk of this part, one step at a time: all at once would stall the core. Hardware
// does not prefetch at this stride. Addresses may be outside of a tensor.
template <typename T, int COUNT> struct NextChunk {
    const T* row[COUNT];
    int64_t stride[COUNT];
    NextChunk(const Rows<const T> (&rows)[COUNT], int64_t b, int64_t t0, int64_t d) {
        for (int i = 0; i < COUNT; i++) {
            const Rows<const T>& of = rows[i].data ? rows[i] : rows[0];  // without z, its place repeats another row
            row[i] = of.at(b, t0) + d;
            stride[i] = of.step_stride;
        }
    }
    SIMD_INLINE void prefetch_step() {
        for (int i = 0; i < COUNT; i++) {
            __builtin_prefetch(row[i], 0, 2);  // to L2, because L1 is full of data in use
            row[i] += stride[i];
        }
    }
};

struct Free {
    void operator()(void* p) const { std::free(p); }
};
template <typename T> using Buffer = std::unique_ptr<T[], Free>;
template <typename T> Buffer<T> buffer(int64_t size) {  // aligned to a cache line, not initialized
    void* p = std::aligned_alloc(64, (std::max<int64_t>(size, 1) * sizeof(T) + 63) / 64 * 64);
    if (!p) throw std::bad_alloc();
    return Buffer<T>((T*)p);
}

template <typename T> SIMD_INLINE Vec<T> load_lanes(const T* p, int64_t lanes) {
    return lanes == Vec<T>::width ? Vec<T>::load(p) : Vec<T>::load_n(p, lanes);
}
template <typename T> SIMD_INLINE void store_lanes(T* p, Vec<T> v, int64_t lanes) {
    if (lanes == Vec<T>::width)
        v.store(p);
    else
        v.store_n(p, lanes);
}

// Transposes (lanes, N) of a block of a tensor to (N, width), and back. Lanes beyond the last channel are zero.
template <typename T> void to_vectors(const T* from, T* to, int64_t states, int64_t lanes) {
    constexpr int64_t W = Vec<T>::width;
    for (int64_t n = 0; n < states; n += W) {
        const int64_t columns = std::min(W, states - n);
        Vec<T> v[W];
        for (int64_t i = 0; i < W; i++) v[i] = i < lanes ? load_lanes(from + i * states + n, columns) : Vec<T>::zero();
        simd::transpose(v);
        for (int64_t i = 0; i < columns; i++) v[i].store(to + (n + i) * W);
    }
}
template <typename T> void from_vectors(const T* from, T* to, int64_t states, int64_t lanes) {
    constexpr int64_t W = Vec<T>::width;
    for (int64_t n = 0; n < states; n += W) {
        const int64_t columns = std::min(W, states - n);
        Vec<T> v[W];
        for (int64_t i = 0; i < W; i++) v[i] = i < columns ? Vec<T>::load(from + (n + i) * W) : Vec<T>::zero();
        simd::transpose(v);
        for (int64_t i = 0; i < lanes; i++) store_lanes(to + i * states + n, v[i], columns);
    }
}

// A log2(e) as vectors, (blocks, N, width). -infinity becomes -3e38. With SMALLEST_STEP, its decay is exp(-3000) = 0
// even if delta is 0, and there is no 0 * infinity.
template <typename T> Buffer<T> exponents(const Problem<T>& p) {
    constexpr int64_t W = Vec<T>::width;
    Buffer<T> to = buffer<T>(p.blocks() * p.states * W);
    for (int64_t d = 0; d < p.blocks(); d++) {
        T* block = to.get() + d * p.states * W;
        to_vectors(p.A + d * W * p.states, block, p.states, p.lanes(d));
        for (int64_t i = 0; i < p.states * W; i++) block[i] = std::max(block[i] * T(simd::log2_e), T(-3e38));
    }
    return to;
}
constexpr double SMALLEST_STEP = 1e-35;  // added to delta in decays; only a delta of 0 changes

// delta, and with DERIVATIVE its derivative with respect to dt.
template <typename T, bool DERIVATIVE> SIMD_INLINE Vec<T> step_size(Vec<T> x, bool softplus, Vec<T>& derivative) {
    const Vec<T> one(T(1));
    if (!softplus) {
        derivative = one;
        return x;
    }
    const Vec<T> e = simd::exp(-simd::abs(x));
    if (DERIVATIVE) derivative = simd::where_negative(x, e, one) / (one + e);  // a precise sigmoid
    return simd::max(Vec<T>::zero(), x) + simd::log1p(e);
}

}  // namespace selective_scan
