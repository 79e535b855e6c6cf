// Backward of the selective scan, from the last chunk to the first. Each chunk recomputes its states from the saved
// state at its start, and then goes through them in reverse. With x_t the gradient of h_t:
//
//     x_t = C_t g_t + a_{t+1} x_{t+1}            g = dy silu(z)
//     dC_t = sum_d g_t h_t                       dB_t = sum_d x_t (delta u)_t
//     d(delta u)_t = sum_n x_t B_t               w_t = x_t a_t h_{t-1}
//     ddelta_t = sum_n w_t A + d(delta u)_t u_t  dA = sum_t w_t delta_t
#pragma once

#include "backward_states.h"

namespace selective_scan {

template <typename T> struct Gradients {
    T *du, *ddt, *dz;        // (B, T, D); dz null without z
    T *dB, *dC;              // (B, T, N)
    T *dA, *dD, *dbias, *dh0;  // (D, N), (D,), (D,), (B, D, N)
};

template <typename T>
void backward_chunk(const Problem<T>& p, const Rows<const T>& dy, int64_t b, int64_t block, int64_t t0, const T* A,
                    const T* start, const BlockGradients<T>& to, const Gradients<T>& out,
                    NextChunk<T, 7>& next) {
    constexpr int64_t W = Vec<T>::width;
    const int64_t d = block * W, lanes = p.lanes(block), steps = std::min(CHUNK, p.length - t0);
    const Vec<T> zero = Vec<T>::zero(), one(T(1));
    const Vec<T> bias = p.bias ? load_lanes(p.bias + d, lanes) : zero, D = p.D ? load_lanes(p.D + d, lanes) : zero;
    BackwardChunk<T> c;
    for (int64_t t = 0; t < steps; t++) {
        const int64_t at = t * W;
        const Vec<T> u = load_lanes(p.u.at(b, t0 + t) + d, lanes);
        Vec<T> slope, g = load_lanes(dy.at(b, t0 + t) + d, lanes);
        const Vec<T> step = step_size<T, true>(load_lanes(p.dt.at(b, t0 + t) + d, lanes) + bias, p.softplus, slope);
        step.store(c.step + at);
        (step * u).store(c.drive + at);
        slope.store(c.slope + at);
        u.store(c.u + at);
        if (p.z.data) {
            const Vec<T> z = load_lanes(p.z.at(b, t0 + t) + d, lanes), s = simd::sigmoid(z);
            (g * s * simd::fma(z, one - s, one)).store(c.gate + at);
            (D * u).store(c.y + at);
            g = g * z * s;
        }
        g.store(c.g + at);
        zero.store(c.grad_drive + at);
        zero.store(c.grad_step + at);
    }
    int64_t n = 0;
    for (; n + BACKWARD_STATES <= p.states; n += BACKWARD_STATES)
        backward_states<T, BACKWARD_STATES>(p, c, b, t0, steps, n, A, start, to, next);
    for (; n < p.states; n++) backward_states<T, 1>(p, c, b, t0, steps, n, A, start, to, next);
    Vec<T> dD = Vec<T>::load(to.dD), dbias = Vec<T>::load(to.dbias);
    for (int64_t t = steps - 1; t >= 0; t--) {
        const int64_t at = t * W, row = (b * p.length + t0 + t) * p.channels + d;
        const Vec<T> u = Vec<T>::load(c.u + at), g = Vec<T>::load(c.g + at), drive = Vec<T>::load(c.grad_drive + at);
        const Vec<T> step = simd::fma(drive, u, Vec<T>::load(c.grad_step + at) * Vec<T>(T(simd::ln_2)));
        const Vec<T> ddt = step * Vec<T>::load(c.slope + at);
        store_lanes(out.du + row, simd::fma(drive, Vec<T>::load(c.step + at), g * D), lanes);
        store_lanes(out.ddt + row, ddt, lanes);
        if (p.z.data) store_lanes(out.dz + row, Vec<T>::load(c.gate + at) * Vec<T>::load(c.y + at), lanes);
        dD = simd::fma(g, u, dD);
        dbias += ddt;
    }
    dD.store(to.dD);
    dbias.store(to.dbias);
}

// Partial sums: per sequence and block, as vectors, (B, blocks) of N, 1 and 1; per group of channels, (groups, B, T,
// N). They are added at the end in this order, so the result does not depend on the threads.
template <typename T> struct PartialSums {
    Buffer<T> dA, dD, dbias, dB, dC;
};

// Scratch of a thread: gradients of B and C per lane (CHUNK, N) for one group, and of the states (blocks, N).
template <typename T> struct Scratch {
    Buffer<T> lanes_B, lanes_C, dh;
};

// Computes the groups of one sequence from `first_group` to before `last_group`.
template <typename T>
void backward_part(const Problem<T>& p, const Rows<const T>& dy, const T* dhT, const T* saved, const T* A, int64_t b,
                   int64_t first_group, int64_t last_group, const Scratch<T>& own, PartialSums<T>& sums,
                   const Gradients<T>& out) {
    constexpr int64_t W = Vec<T>::width;
    const int64_t N = p.states, NW = N * W, blocks = p.blocks(), rows = p.length * p.channels;
    const int64_t first = p.first_block(first_group), last = p.first_block(last_group);
    const Rows<const T> du{out.du, rows, p.channels}, ddt{out.ddt, rows, p.channels},
        dz{out.dz, rows, p.channels};
    T *dh = own.dh.get(), *lanes_B = own.lanes_B.get(), *lanes_C = own.lanes_C.get();
    T *dA = &sums.dA[b * blocks * NW], *dD = &sums.dD[b * blocks * W], *dbias = &sums.dbias[b * blocks * W];
    for (int64_t d = first; d < last; d++)
        to_vectors(dhT + (b * p.channels + d * W) * N, dh + d * NW, N, p.lanes(d));
    std::fill_n(dA + first * NW, (last - first) * NW, T(0));
    std::fill_n(dD + first * W, (last - first) * W, T(0));
    std::fill_n(dbias + first * W, (last - first) * W, T(0));
    for (int64_t chunk = p.chunks() - 1; chunk >= 0; chunk--) {
        const int64_t t0 = chunk * CHUNK, steps = std::min(CHUNK, p.length - t0);
        const T* start = saved + (b * p.chunks() + chunk) * p.padded() * N;
        for (int64_t group = first_group; group < last_group; group++) {
            std::fill_n(lanes_B, steps * NW, T(0));
            std::fill_n(lanes_C, steps * NW, T(0));
            for (int64_t d = p.first_block(group); d < p.first_block(group + 1); d++) {
                const bool more = d + 1 < last;
                NextChunk<T, 7> next({p.u, p.dt, p.z, dy, du, ddt, dz}, b, more ? t0 : t0 - CHUNK,
                                     (more ? d + 1 : first) * W);
                backward_chunk<T>(p, dy, b, d, t0, A + d * NW, start + d * NW,
                                  {dh + d * NW, dA + d * NW, lanes_B, lanes_C, dD + d * W, dbias + d * W}, out, next);
            }
            const int64_t row = ((group * p.batch + b) * p.length + t0) * N;
            simd::sums(lanes_B, steps * N, &sums.dB[row]);
            simd::sums(lanes_C, steps * N, &sums.dC[row]);
        }
    }
    for (int64_t d = first; d < last; d++)
        from_vectors(dh + d * NW, out.dh0 + (b * p.channels + d * W) * N, N, p.lanes(d));
}

// The sum over i < count of from[i * stride + j], in this order.
template <typename T> void add_up(const T* from, int64_t count, int64_t stride, int64_t size, T* to) {
    constexpr int64_t W = Vec<T>::width;
    for (int64_t j = 0; j < size; j += W) {
        const int64_t lanes = std::min(W, size - j);
        Vec<T> sum = Vec<T>::zero();
        for (int64_t i = 0; i < count; i++) sum += load_lanes(from + i * stride + j, lanes);
        store_lanes(to + j, sum, lanes);
    }
}

// dhT is (B, D, N). `saved` is the result of the forward pass.
template <typename T>
void backward(const Problem<T>& p, const Rows<const T>& dy, const T* dhT, const T* saved, const Gradients<T>& out,
              int64_t threads) {
    constexpr int64_t W = Vec<T>::width;
    const int64_t N = p.states, NW = N * W, blocks = p.blocks(), groups = p.groups(), rows = p.batch * p.length;
    const int64_t parts = p.parts(threads);
    const Buffer<T> A = exponents(p);
    PartialSums<T> sums{buffer<T>(p.batch * blocks * NW), buffer<T>(p.batch * blocks * W),
                        buffer<T>(p.batch * blocks * W), buffer<T>(groups * rows * N), buffer<T>(groups * rows * N)};
    const auto scratch = [&] {
        return Scratch<T>{buffer<T>(CHUNK * NW), buffer<T>(CHUNK * NW), buffer<T>(blocks * NW)};
    };
    threads::for_each(p.batch * parts, threads, scratch, [&](int64_t item, const Scratch<T>& own) {
        const int64_t part = item % parts;
        backward_part(p, dy, dhT, saved, A.get(), item / parts, p.first_group(part, parts),
                      p.first_group(part + 1, parts), own, sums, out);
    });
    threads::for_each(rows, threads, [&](int64_t row) {
        add_up(&sums.dB[row * N], groups, rows * N, N, out.dB + row * N);
        add_up(&sums.dC[row * N], groups, rows * N, N, out.dC + row * N);
    });
    const auto block_of_A = [&] { return buffer<T>(NW); };
    threads::for_each(blocks, threads, block_of_A, [&](int64_t d, const Buffer<T>& dA) {
        const int64_t lanes = p.lanes(d);
        add_up(&sums.dA[d * NW], p.batch, blocks * NW, NW, dA.get());
        from_vectors(dA.get(), out.dA + d * W * N, N, lanes);
        add_up(&sums.dD[d * W], p.batch, blocks * W, lanes, out.dD + d * W);
        add_up(&sums.dbias[d * W], p.batch, blocks * W, lanes, out.dbias + d * W);
    });
}

}  // namespace selective_scan
