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
    const int64_t K, writes;  // K padded; writes: rows of BLOCK
    Buffer<T> readers;        // (2 BLOCK, K): c, then q
    Buffer<T> writers;        // (writes, K): w, the first of every token, then the second
    Buffer<T> M;              // (2 BLOCK, writes)
    Span span{};
    int64_t ahead = 0;  // tokens from the span to what is read next

    explicit Block(const Inputs<T>& in_)
        : in(in_), K(padded<T>(in.K)), writes(in.writes() * BLOCK), readers(2 * BLOCK * K), writers(writes * K),
          M(2 * BLOCK * writes), decayed_readers(in.decay == NONE ? 0 : 2 * BLOCK * K),
          decayed_writers(in.decay == NONE ? 0 : writes * K), rows(in.decay == KEY ? K : 1), step(BLOCK * rows),
          from((BLOCK + 1) * rows), to(BLOCK * rows), whole(K), passed(2 * BLOCK * BLOCK) {}

    const T* from_start() const { return in.decay == NONE ? readers : decayed_readers; }  // readers times A
    const T* to_end() const { return in.decay == NONE ? writers : decayed_writers; }      // writers times D_{last,i}

    // Decays for the keys n .. n + W: a of token j; the product up to and without it; of those behind it; of all.
    SIMD_INLINE Vec<T> step_at(int64_t j, int64_t n) const { return at(step, j, n); }
    SIMD_INLINE Vec<T> from_at(int64_t j, int64_t n) const { return at(from, j, n); }
    SIMD_INLINE Vec<T> to_at(int64_t j, int64_t n) const { return at(to, j, n); }
    SIMD_INLINE Vec<T> whole_at(int64_t n) const { return Vec<T>::load(whole + n); }
    T whole_of(int64_t key) const { return whole[key]; }

    // All but M. Rows beyond the span's tokens are zero, with decays of 1. `tokens` from here comes what is read next.
    void read(int64_t b, int64_t h, const Span& span_, int64_t tokens) {
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
        in.decay == KEY ? decays_by_key(b, h) : decays(b, h);
    }

    void score() {
        for (int64_t p = 0; p < writes; p += BLOCK) {
            if (in.decay == KEY) {
                InnerProducts<T, true>::run(readers, writers + p * K, step, K, M + p, writes);
            } else {
                InnerProducts<T, false>::run(readers, writers + p * K, nullptr, K, M + p, writes);
            }
        }
        if (in.decay == HEAD) times_passed(M);
    }

    // `pairs` (2 BLOCK, writes), each times the decays by head between its tokens.
    void times_passed(T* pairs) const {
        for (int64_t j = 0; j < 2 * BLOCK; j++)
            for (int64_t i = 0; i < writes; i++) pairs[j * writes + i] *= passed[j * BLOCK + i % BLOCK];
    }

private:
    SIMD_INLINE Vec<T> at(const T* decays, int64_t j, int64_t n) const {
        return in.decay == KEY ? Vec<T>::load(decays + j * K + n) : Vec<T>(decays[j]);
    }

    void decays(int64_t b, int64_t h) {
        constexpr int64_t W = Vec<T>::width;
        alignas(64) T logs[BLOCK + W] = {}, exact[BLOCK + W];
        T sum = 0;
        for (int64_t j = 0; in.decay == HEAD && j < span.length; j++)
            sum += logs[j] = in.log_decay[in.head(b, span.t0 + j, h)];
        for (int64_t j = 0; j < BLOCK; j += W) simd::exp(Vec<T>::load(logs + j)).store(exact + j);
        if (span.reset) exact[0] = 0;
        std::copy_n(exact, BLOCK, (T*)step);
        // Once rounded: this is what adds up over a sequence.
        const Vec<T> all = span.reset ? Vec<T>::zero() : simd::exp(Vec<T>(sum));
        for (int64_t n = 0; n < K; n += W) all.store(whole + n);
        from[0] = to[BLOCK - 1] = 1;
        for (int64_t j = 0; j < BLOCK; j++) from[j + 1] = from[j] * step[j];
        for (int64_t j = BLOCK - 1; j > 0; j--) to[j - 1] = to[j] * step[j];
        for (int64_t i = 0; i < BLOCK; i++) {
            T decay = passed[(BLOCK + i) * BLOCK + i] = 1;
            for (int64_t j = i + 1; j < BLOCK; j++) {
                passed[j * BLOCK + i] = decay;
                passed[(BLOCK + j) * BLOCK + i] = decay *= step[j];
            }
        }
        if (in.delta_rule()) scaled(writers, step, BLOCK, readers);
        if (in.decay == NONE) return;
        scaled(readers, from, BLOCK, decayed_readers);
        scaled(readers + BLOCK * K, from + 1, BLOCK, decayed_readers + BLOCK * K);
        for (int64_t p = 0; p < writes; p += BLOCK) scaled(writers + p * K, to, BLOCK, decayed_writers + p * K);
    }

    void scaled(const T* given, const T* factors, int64_t count, T* result) const {
        for (int64_t j = 0; j < count; j++)
            for (int64_t n = j * K; n < (j + 1) * K; n += Vec<T>::width)
                (Vec<T>::load(given + n) * Vec<T>(factors[j])).store(result + n);
    }

    void decays_by_key(int64_t b, int64_t h) {
        const int64_t start = in.head(b, span.t0, h) * in.K, stride = in.H * in.K;
        gemm::pack(in.log_decay + start, stride, span.length, in.K, (T*)step, BLOCK, K, ahead * stride);
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
                (Vec<T>::load(c) * decay).store(decayed_readers + j * K + n);
                decay *= a[j];
                (Vec<T>::load(c + BLOCK * K) * decay).store(decayed_readers + (BLOCK + j) * K + n);
                a[j].store(step + j * K + n);
                decay.store(from + (j + 1) * K + n);
            }
            decay = Vec<T>((T)1);
#pragma GCC unroll 8
            for (int64_t j = BLOCK - 1; j >= 0; j--) {
                decay.store(to + j * K + n);
                for (int64_t i = j * K + n; i < writes * K; i += BLOCK * K)
                    (Vec<T>::load(writers + i) * decay).store(decayed_writers + i);
                decay *= a[j];
            }
        }
    }

    Buffer<T> decayed_readers, decayed_writers;  // as readers and writers; none where nothing decays
    const int64_t rows;                          // numbers in a row of decays: K by key, else 1
    Buffer<T> step, from, to;                    // (BLOCK, rows), one row more, (BLOCK, rows)
    Buffer<T> whole;                             // (K,)
    Buffer<T> passed;                            // (2 BLOCK, BLOCK): D_{j-1,i} and D_{j,i} of decays by head
};

}  // namespace delta
