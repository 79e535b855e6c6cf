// Decays per key, and the generalized form with any decay, which is expanded to one per key. A block is up to 8 tokens
// of one head, solved together.
//
// Both forms are one recurrence. A step reads the state before its decay. Then it decays it and writes along keys:
//     r_t = c_t^T S_{t-1}       S_t = diag(a_t) S_{t-1} + sum_p w_{t,p} x_{t,p}^T       y_t = q_t^T S_t
//     delta rule     c = a k (elementwise);  w = k, x = beta (v - r)
//     generalized    c = a^;                 w_0 = b, x_0 = r;  w_1 = k, x_1 = v
// Within a block that starts from S, with tokens j, i, A_j the product of its decays up to and including j, and
// D_{j,i} = a_{i+1} .. a_j:
//     r_j = (c_j A_{j-1})^T S + sum_{i<j} M[j, i] x_i             M[j, i] = c_j^T (D_{j-1,i} w_i)
//     y_j = (q_j A_j)^T S + sum_{i<=j} M[BLOCK + j, i] x_i        M[BLOCK + j, i] = q_j^T (D_{j,i} w_i)
//     S  <- diag(A_last) S + sum_i (D_{last,i} w_i) x_i^T
// Every decay is a product of given decays, without divisions, so decays may be arbitrarily strong. A reset starts a
// block from zeros, without a product with the old state.
#pragma once

#include "problem.h"

namespace delta {

template <typename T>
struct KeyBlock {
    const Inputs<T>& in;
    const int64_t K, writes;  // K padded; writes: rows of BLOCK
    Buffer<T> readers;        // (2 BLOCK, K): c, then q
    Buffer<T> writers;        // (writes, K): w, the first ones of all tokens, then the second ones
    Buffer<T> M;              // (2 BLOCK, writes)
    Buffer<T> from_start;     // (2 BLOCK, K): readers times A
    Buffer<T> to_end;         // (writes, K): writers times D_{last,i}
    static constexpr int64_t SIZE = BLOCK;
    Span span{};
    int64_t ahead = 0;  // tokens from the span to the next span

    explicit KeyBlock(const Inputs<T>& in_)
        : in(in_), K(padded<T>(in.K)), writes(in.writes() * BLOCK), readers(2 * BLOCK * K), writers(writes * K),
          M(2 * BLOCK * writes), from_start(2 * BLOCK * K), to_end(writes * K), step(BLOCK * K), from((BLOCK + 1) * K),
          to(BLOCK * K), whole(K) {}

    // Decays for the keys n .. n + W: of token j; of all tokens before it; of all tokens after it; of all tokens.
    SIMD_INLINE Vec<T> step_at(int64_t j, int64_t n) const { return Vec<T>::load(step + j * K + n); }
    SIMD_INLINE Vec<T> from_at(int64_t j, int64_t n) const { return Vec<T>::load(from + j * K + n); }
    SIMD_INLINE Vec<T> to_at(int64_t j, int64_t n) const { return Vec<T>::load(to + j * K + n); }
    SIMD_INLINE Vec<T> whole_at(int64_t n) const { return Vec<T>::load(whole + n); }
    T whole_of(int64_t key) const { return whole[key]; }

    // Computes everything except M. Rows beyond the span's tokens are zero, with decays of 1. The next span starts
    // `tokens` after this one.
    void read(int64_t b, int64_t h, const Span& span_, int64_t tokens = BLOCK) {
        span = span_;
        ahead = tokens;
        const int64_t group = in.group(b, span.t0, h) * in.K, head = in.head(b, span.t0, h) * in.K;
        const int64_t of_group = in.G * in.K, of_head = in.H * in.K;
        gemm::pack(in.q + group, of_group, span.length, in.K, readers + BLOCK * K, BLOCK, K, ahead * of_group);
        gemm::pack(in.k + group, of_group, span.length, in.K, writers + (writes - BLOCK) * K, BLOCK, K,
                   ahead * of_group);
        if (!in.delta_rule()) {
            gemm::pack(in.a + head, of_head, span.length, in.K, (T*)readers, BLOCK, K, ahead * of_head);
            gemm::pack(in.b + head, of_head, span.length, in.K, (T*)writers, BLOCK, K, ahead * of_head);
        }
        log_decays(b, h);
        decays();
    }

    void score() {
        for (int64_t p = 0; p < writes; p += BLOCK)
            InnerProducts<T, true>::run(readers, writers + p * K, step, K, M + p, writes);
    }

private:
    void log_decays(int64_t b, int64_t h) {
        const int64_t start = in.head(b, span.t0, h), stride = in.H * in.K;
        if (in.decay == KEY) {
            gemm::pack(in.log_decay + start * in.K, stride, span.length, in.K, (T*)step, BLOCK, K, ahead * stride);
            return;
        }
        for (int64_t j = 0; j < BLOCK; j++)
            std::fill_n(step + j * K, K, in.decay == HEAD && j < span.length ? in.log_decay[start + j * in.H] : (T)0);
    }

    void decays() {
        for (int64_t n = 0; n < K; n += Vec<T>::width) {
            Vec<T> a[BLOCK], sum = Vec<T>::zero(), decay((T)1);
#pragma GCC unroll 8
            for (int64_t j = 0; j < BLOCK; j++) {
                const Vec<T> log = Vec<T>::load(step + j * K + n);
                sum += log;
                a[j] = simd::exp(log);
            }
            if (span.reset) a[0] = Vec<T>::zero();
            (span.reset ? a[0] : simd::exp(sum)).store(whole + n);
            decay.store(from + n);
#pragma GCC unroll 8
            for (int64_t j = 0; j < BLOCK; j++) {
                T* const c = readers + j * K + n;
                if (in.delta_rule()) (a[j] * Vec<T>::load(writers + j * K + n)).store(c);
                (Vec<T>::load(c) * decay).store(from_start + j * K + n);
                decay *= a[j];
                (Vec<T>::load(c + BLOCK * K) * decay).store(from_start + (BLOCK + j) * K + n);
                a[j].store(step + j * K + n);
                decay.store(from + (j + 1) * K + n);
            }
            decay = Vec<T>((T)1);
#pragma GCC unroll 8
            for (int64_t j = BLOCK - 1; j >= 0; j--) {
                decay.store(to + j * K + n);
                for (int64_t i = j * K + n; i < writes * K; i += BLOCK * K)
                    (Vec<T>::load(writers + i) * decay).store(to_end + i);
                decay *= a[j];
            }
        }
    }

    Buffer<T> step, from, to;  // (BLOCK, K), one more row, (BLOCK, K); `step` first holds log decays
    Buffer<T> whole;           // (K,)
};

}  // namespace delta
