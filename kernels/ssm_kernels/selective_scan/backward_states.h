// Backward of the selective scan over one chunk of one block of channels, for a few states at a time.
#pragma once

#include "problem.h"

namespace selective_scan {

// Values of one chunk of one block, as vectors.
template <typename T> struct alignas(64) BackwardChunk {
    static constexpr int64_t SIZE = CHUNK * Vec<T>::width;
    T step[SIZE];   // delta
    T drive[SIZE];  // delta u
    T slope[SIZE];  // derivative of delta with respect to dt
    T u[SIZE];
    T g[SIZE];     // dy silu(z)
    T gate[SIZE];  // dy silu'(z); dz is this times y
    T y[SIZE];     // before the gate; only computed with a gate
    T grad_drive[SIZE], grad_step[SIZE];
};

// Decays and values of NT states. h[0] is the state at the chunk's start.
template <typename T, int NT> struct alignas(64) Trajectory {
    static constexpr int64_t SIZE = NT * Vec<T>::width;
    T a[CHUNK * SIZE], h[(CHUNK + 1) * SIZE];
};

// The sums that a chunk of a block adds to, as vectors: dh and dA (N), dB and dC (step, N), dD and dbias (1).
template <typename T> struct BlockGradients {
    T *dh, *dA, *dB, *dC, *dD, *dbias;
};

// Recomputes decays and states from index n, from the chunk's start. With a gate, it also computes c.y.
template <typename T, int NT, bool GATED>
SIMD_INLINE void replay(const Problem<T>& p, BackwardChunk<T>& c, Trajectory<T, NT>& to, int64_t b, int64_t t0,
                        int64_t steps, int64_t n, const T* A, const T* start, NextChunk<T, 7>& next) {
    constexpr int64_t W = Vec<T>::width;
    constexpr int G = NT % SIDE_BY_SIDE ? 1 : SIDE_BY_SIDE;
    Vec<T> h[NT];
    for (int i = 0; i < NT; i++) {
        h[i] = Vec<T>::load(start + (n + i) * W);
        h[i].store(to.h + i * W);
    }
    for (int64_t t = 0; t < steps; t++) {
        if (n == 0) next.prefetch_step();
        const T *B = p.B.at(b, t0 + t) + n, *C = p.C.at(b, t0 + t) + n;
        T *to_a = to.a + t * NT * W, *to_h = to.h + (t + 1) * NT * W;
        const bool reset = p.resets_at(b, t0 + t);
        const Vec<T> step = Vec<T>::load(c.step + t * W) + Vec<T>(T(SMALLEST_STEP));
        const Vec<T> drive = Vec<T>::load(c.drive + t * W);
        Vec<T> y = GATED ? Vec<T>::load(c.y + t * W) : Vec<T>::zero();
#pragma GCC unroll 16
        for (int i = 0; i < NT; i += G) {
            Vec<T> a[G];
#pragma GCC unroll 16
            for (int j = 0; j < G; j++) a[j] = step * Vec<T>::load(A + (n + i + j) * W);
            simd::exp2_decay(a);
            if (reset)
                for (int j = 0; j < G; j++) h[i + j] = Vec<T>::zero();
#pragma GCC unroll 16
            for (int j = 0; j < G; j++) {
                h[i + j] = simd::fma(a[j], h[i + j], drive * Vec<T>(B[i + j]));
                a[j].store(to_a + (i + j) * W);
                h[i + j].store(to_h + (i + j) * W);
                if (GATED) y = simd::fma(h[i + j], Vec<T>(C[i + j]), y);
            }
        }
        if (GATED) y.store(c.y + t * W);
    }
}

// The same steps in reverse.
template <typename T, int NT>
SIMD_INLINE void reverse(const Problem<T>& p, BackwardChunk<T>& c, const Trajectory<T, NT>& from, int64_t b, int64_t t0,
                         int64_t steps, int64_t n, const T* A, const BlockGradients<T>& to) {
    constexpr int64_t W = Vec<T>::width;
    Vec<T> dh[NT], dA[NT];
    for (int i = 0; i < NT; i++) {
        dh[i] = Vec<T>::load(to.dh + (n + i) * W);
        dA[i] = Vec<T>::load(to.dA + (n + i) * W);
    }
    for (int64_t t = steps - 1; t >= 0; t--) {
        const T *B = p.B.at(b, t0 + t) + n, *C = p.C.at(b, t0 + t) + n;
        const T *a = from.a + t * NT * W, *before = from.h + t * NT * W, *h = before + NT * W;
        T *to_B = to.dB + (t * p.states + n) * W, *to_C = to.dC + (t * p.states + n) * W;
        const Vec<T> g = Vec<T>::load(c.g + t * W), drive = Vec<T>::load(c.drive + t * W);
        const Vec<T> step = Vec<T>::load(c.step + t * W);
        const bool reset = p.resets_at(b, t0 + t);
        Vec<T> grad_drive = Vec<T>::load(c.grad_drive + t * W), grad_step = Vec<T>::load(c.grad_step + t * W);
#pragma GCC unroll 16
        for (int i = 0; i < NT; i++) {
            const Vec<T> x = simd::fma(g, Vec<T>(C[i]), dh[i]);
            simd::fma(g, Vec<T>::load(h + i * W), Vec<T>::load(to_C + i * W)).store(to_C + i * W);
            simd::fma(x, drive, Vec<T>::load(to_B + i * W)).store(to_B + i * W);
            grad_drive = simd::fma(x, Vec<T>(B[i]), grad_drive);
            if (reset) {  // no product with 0, because earlier values may be infinite
                dh[i] = Vec<T>::zero();
                continue;
            }
            dh[i] = x * Vec<T>::load(a + i * W);
            const Vec<T> w = dh[i] * Vec<T>::load(before + i * W);
            grad_step = simd::fma(w, Vec<T>::load(A + (n + i) * W), grad_step);
            dA[i] = simd::fma(w, step, dA[i]);
        }
        grad_drive.store(c.grad_drive + t * W);
        grad_step.store(c.grad_step + t * W);
    }
    for (int i = 0; i < NT; i++) {
        dh[i].store(to.dh + (n + i) * W);
        dA[i].store(to.dA + (n + i) * W);
    }
}

template <typename T, int NT>
SIMD_INLINE void backward_states(const Problem<T>& p, BackwardChunk<T>& c, int64_t b, int64_t t0, int64_t steps,
                                 int64_t n, const T* A, const T* start, const BlockGradients<T>& to,
                                 NextChunk<T, 7>& next) {
    Trajectory<T, NT> states;
    if (p.z.data)
        replay<T, NT, true>(p, c, states, b, t0, steps, n, A, start, next);
    else
        replay<T, NT, false>(p, c, states, b, t0, steps, n, A, start, next);
    reverse<T, NT>(p, c, states, b, t0, steps, n, A, to);
}

}  // namespace selective_scan
