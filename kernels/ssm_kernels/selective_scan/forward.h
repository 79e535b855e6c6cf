// Forward of the selective scan.
#pragma once

#include "problem.h"

namespace selective_scan {

// Values of one chunk of one block, as vectors.
template <typename T> struct alignas(64) ForwardChunk {
    T step[CHUNK * Vec<T>::width];   // delta
    T drive[CHUNK * Vec<T>::width];  // delta u
    T y[CHUNK * Vec<T>::width];
};

// Scans NT states from index n over one chunk. Updates h, and adds to y.
template <typename T, int NT>
SIMD_INLINE void forward_states(const Problem<T>& p, ForwardChunk<T>& c, int64_t b, int64_t t0, int64_t steps,
                                int64_t n, const T* A, const T* h_in, T* h_out, NextChunk<T, 4>& next) {
    constexpr int64_t W = Vec<T>::width;
    Vec<T> h[NT];
    for (int i = 0; i < NT; i++) h[i] = Vec<T>::load(h_in + (n + i) * W);
    for (int64_t t = 0; t < steps; t++) {
        if (n == 0) next.prefetch_step();
        const T *B = p.B.at(b, t0 + t) + n, *C = p.C.at(b, t0 + t) + n;
        const Vec<T> step = Vec<T>::load(c.step + t * W), drive = Vec<T>::load(c.drive + t * W);
        Vec<T> y[2] = {Vec<T>::load(c.y + t * W), Vec<T>::zero()};
        if (p.resets_at(b, t0 + t))
            for (int i = 0; i < NT; i++) h[i] = Vec<T>::zero();
        constexpr int G = NT % SIDE_BY_SIDE ? 1 : SIDE_BY_SIDE;
#pragma GCC unroll 16
        for (int i = 0; i < NT; i += G) {
            Vec<T> a[G];
#pragma GCC unroll 16
            for (int j = 0; j < G; j++) a[j] = step * Vec<T>::load(A + (n + i + j) * W);
            simd::exp2_decay(a);
#pragma GCC unroll 16
            for (int j = 0; j < G; j++) h[i + j] = simd::fma(a[j], h[i + j], drive * Vec<T>(B[i + j]));
#pragma GCC unroll 16
            for (int j = 0; j < G; j++) y[j % 2] = simd::fma(h[i + j], Vec<T>(C[i + j]), y[j % 2]);
        }
        (y[0] + y[1]).store(c.y + t * W);
    }
    for (int i = 0; i < NT; i++) h[i].store(h_out + (n + i) * W);
}

// Scans one chunk of one block, from the states h_in to h_out, which may be the same memory.
template <typename T>
void forward_chunk(const Problem<T>& p, int64_t b, int64_t block, int64_t t0, const T* A, const T* h_in, T* h_out,
                   T* y, NextChunk<T, 4>& next) {
    constexpr int64_t W = Vec<T>::width;
    const int64_t d = block * W, lanes = p.lanes(block), steps = std::min(CHUNK, p.length - t0);
    const Vec<T> bias = p.bias ? load_lanes(p.bias + d, lanes) : Vec<T>::zero();
    const Vec<T> D = p.D ? load_lanes(p.D + d, lanes) : Vec<T>::zero();
    ForwardChunk<T> c;
    Vec<T> unused;
    for (int64_t t = 0; t < steps; t++) {
        const Vec<T> u = load_lanes(p.u.at(b, t0 + t) + d, lanes), x = load_lanes(p.dt.at(b, t0 + t) + d, lanes) + bias;
        const Vec<T> step = step_size<T, false>(x, p.softplus, unused);
        (step + Vec<T>(T(SMALLEST_STEP))).store(c.step + t * W);
        (step * u).store(c.drive + t * W);
        (D * u).store(c.y + t * W);
    }
    int64_t n = 0;
    for (; n + FORWARD_STATES <= p.states; n += FORWARD_STATES)
        forward_states<T, FORWARD_STATES>(p, c, b, t0, steps, n, A, h_in, h_out, next);
    for (; n + 4 <= p.states; n += 4) forward_states<T, 4>(p, c, b, t0, steps, n, A, h_in, h_out, next);
    for (; n < p.states; n++) forward_states<T, 1>(p, c, b, t0, steps, n, A, h_in, h_out, next);
    for (int64_t t = 0; t < steps; t++) {
        Vec<T> out = Vec<T>::load(c.y + t * W);
        if (p.z.data) {
            const Vec<T> z = load_lanes(p.z.at(b, t0 + t) + d, lanes);
            out = out * z * simd::sigmoid(z);
        }
        store_lanes(y + (b * p.length + t0 + t) * p.channels + d, out, lanes);
    }
}

// y is (B, T, D), hT is (B, D, N). `saved` is null, or memory for the states at chunk starts, (B, chunks, padded, N),
// in blocks of (N, width). Narrow vectors may leave whole blocks of padding. These are zero.
template <typename T> void forward(const Problem<T>& p, T* y, T* hT, T* saved, int64_t threads) {
    constexpr int64_t W = Vec<T>::width;
    const int64_t N = p.states, NW = N * W, chunks = p.chunks(), parts = p.parts(threads);
    const Buffer<T> A = exponents(p);
    const Rows<const T> to{y, p.length * p.channels, p.channels};
    const auto scratch = [&] { return buffer<T>(p.blocks() * NW); };
    threads::for_each(p.batch * parts, threads, scratch, [&](int64_t item, const Buffer<T>& state) {
        const int64_t b = item / parts, part = item % parts;
        const int64_t first = p.first_block(p.first_group(part, parts));
        const int64_t last = p.first_block(p.first_group(part + 1, parts));
        const auto start = [&](int64_t chunk, int64_t d) {
            T* kept = saved + (b * chunks + chunk) * p.padded() * N;
            return (saved && chunk < chunks ? kept : state.get()) + d * NW;
        };
        for (int64_t d = first; d < last; d++) {
            if (p.h0)
                to_vectors(p.h0 + (b * p.channels + d * W) * N, start(0, d), N, p.lanes(d));
            else
                std::fill_n(start(0, d), NW, T(0));
        }
        for (int64_t chunk = 0; chunk < chunks; chunk++)
            for (int64_t d = first; d < last; d++) {
                const bool more = d + 1 < last;
                NextChunk<T, 4> next({p.u, p.dt, p.z, to}, b, (more ? chunk : chunk + 1) * CHUNK,
                                     (more ? d + 1 : first) * W);
                forward_chunk(p, b, d, chunk * CHUNK, &A[d * NW], start(chunk, d), start(chunk + 1, d), y, next);
            }
        if (saved && last == p.blocks())
            for (int64_t chunk = 0; chunk < chunks; chunk++)
                std::fill_n(start(chunk, last), (p.padded() - last * W) * N, T(0));
        for (int64_t d = first; d < last; d++)
            from_vectors(start(chunks, d), hT + (b * p.channels + d * W) * N, N, p.lanes(d));
    });
}

}  // namespace selective_scan
