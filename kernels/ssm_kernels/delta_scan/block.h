// A block of the delta scan: up to 8 tokens of one head, solved together.
//
// Both forms are one recurrence. A step reads the state before its decay, and then decays it and writes along keys:
//     r_t = c_t^T S_{t-1}       S_t = diag(a_t) S_{t-1} + sum_p w_{t,p} x_{t,p}^T       y_t = q_t^T S_t
//     delta rule     c = a k (elementwise);  w = k, x = beta (v - r)
//     generalized    c = a^;                 w_0 = b, x_0 = r;  w_1 = k, x_1 = v
// Within a block that starts from S, with j, i its tokens, A_j the product of its decays up to and with j, and
// D_{j,i} = a_{i+1} .. a_j:
//     r_j = (c_j A_{j-1})^T S + sum_{i<j} M[j, i] x_i             M[j, i] = c_j^T (D_{j-1,i} w_i)
//     y_j = (q_j A_j)^T S + sum_{i<=j} M[BLOCK + j, i] x_i        M[BLOCK + j, i] = q_j^T (D_{j,i} w_i)
//     S  <- diag(A_last) S + sum_i (D_{last,i} w_i) x_i^T
// Every decay is a product of given ones, so that none may be too strong. A reset starts a block, from zeros: what was
// before it is multiplied by nothing.
#pragma once

#include "problem.h"

namespace delta {

template <typename T>
struct Block {
    const Inputs<T>& in;
    const int64_t K, writes;         // K padded; writes: rows of BLOCK
    Buffer<T> readers, from_start;   // (2 BLOCK, K): c, then q; and times A
    Buffer<T> writers, to_end;       // (writes, K): w, the first of every token, then the second; and times D_{last,i}
    Buffer<T> step, from, to;        // (BLOCK, K), (BLOCK + 1, K), (BLOCK, K): a; A with that of no token first; D
    Buffer<T> whole;                 // (K,): A_last
    Buffer<T> M;                     // (2 BLOCK, writes)
    Buffer<T> passed;                // (2 BLOCK, BLOCK): D_{j-1,i} and D_{j,i} of decays by head
    Span span{};

    explicit Block(const Inputs<T>& in_)
        : in(in_), K(padded<T>(in.K)), writes(in.writes() * BLOCK), readers(2 * BLOCK * K), from_start(2 * BLOCK * K),
          writers(writes * K), to_end(writes * K), step(BLOCK * K), from((BLOCK + 1) * K), to(BLOCK * K), whole(K),
          M(2 * BLOCK * writes), passed(2 * BLOCK * BLOCK) {}

    // All but M. Rows beyond the span's tokens are zero, with decays of 1.
    void read(int64_t b, int64_t h, const Span& span_) {
        span = span_;
        alignas(64) T logs[BLOCK + Vec<T>::width] = {}, decays[BLOCK + Vec<T>::width];
        if (in.decay == HEAD)
            for (int64_t j = 0; j < span.length; j++) logs[j] = in.log_decay[in.head(b, span.t0 + j, h)];
        for (int64_t j = 0; j < BLOCK; j += Vec<T>::width) simd::exp(Vec<T>::load(logs + j)).store(decays + j);
        if (span.reset) decays[0] = 0;
        if (in.decay == HEAD) walk(decays);
        simd::for_each_vector<T>(in.K, [&](int64_t n, auto lanes) {
            Vec<T> decay((T)1), sum = Vec<T>::zero();
            decay.store(from + n);
            for (int64_t j = 0; j < BLOCK; j++) {
                const int64_t t = span.t0 + j;
                T* const c = readers + j * K + n;
                T* const q = c + BLOCK * K;
                T* const w = writers + j * K + n;
                Vec<T> a(decays[j]);
                if (j >= span.length) {
                    for (T* row : {c, q, w}) Vec<T>::zero().store(row);
                    if (!in.delta_rule()) Vec<T>::zero().store(w + BLOCK * K);
                } else {
                    const int64_t of_head = in.head(b, t, h) * in.K + n, of_group = in.group(b, t, h) * in.K + n;
                    if (in.decay == KEY) {
                        const Vec<T> log = lanes.load(in.log_decay + of_head);
                        sum += log;
                        a = span.reset && j == 0 ? Vec<T>::zero() : simd::exp(log);
                    } else {
                        sum += Vec<T>(logs[j]);
                    }
                    const Vec<T> k = lanes.load(in.k + of_group);
                    lanes.load(in.q + of_group).store(q);
                    if (in.delta_rule()) {
                        (a * k).store(c);
                        k.store(w);
                    } else {
                        lanes.load(in.a + of_head).store(c);
                        lanes.load(in.b + of_head).store(w);
                        k.store(w + BLOCK * K);
                    }
                }
                a.store(step + j * K + n);
                (Vec<T>::load(c) * decay).store(from_start + j * K + n);
                decay *= a;
                (Vec<T>::load(q) * decay).store(from_start + (BLOCK + j) * K + n);
                decay.store(from + (j + 1) * K + n);
            }
            // Once rounded: this is what adds up over a sequence.
            (span.reset ? Vec<T>::zero() : simd::exp(sum)).store(whole + n);
            decay = Vec<T>((T)1);
            for (int64_t j = BLOCK - 1; j >= 0; j--) {
                decay.store(to + j * K + n);
                for (int64_t at = j * K + n; at < writes * K; at += BLOCK * K)
                    (Vec<T>::load(writers + at) * decay).store(to_end + at);
                decay *= Vec<T>::load(step + j * K + n);
            }
        });
    }

    void score() {
        for (int64_t p = 0; p < writes; p += BLOCK) {
            if (in.decay == KEY) {
                InnerProducts<T, true>::run(readers, writers + p * K, step, K, M + p, writes);
            } else {
                InnerProducts<T, false>::run(readers, writers + p * K, nullptr, K, M + p, writes);
            }
        }
        if (in.decay == HEAD) times_passed(M, M);
    }

    // to (2 BLOCK, writes) = from, every pair times the decays by head between its tokens.
    void times_passed(const T* given, T* result) const {
        for (int64_t j = 0; j < 2 * BLOCK; j++)
            for (int64_t i = 0; i < writes; i++)
                result[j * writes + i] = given[j * writes + i] * passed[j * BLOCK + i % BLOCK];
    }

private:
    void walk(const T* decays) {
        for (int64_t i = 0; i < BLOCK; i++) {
            T decay = 1;
            for (int64_t j = i; j < BLOCK; j++) {
                if (j > i) {
                    passed[j * BLOCK + i] = decay;
                    decay *= decays[j];
                }
                passed[(BLOCK + j) * BLOCK + i] = decay;
            }
        }
    }
};

}  // namespace delta
