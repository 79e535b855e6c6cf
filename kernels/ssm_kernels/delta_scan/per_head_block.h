// The delta rule with one decay per head and step, or none. A block is up to 16 tokens of one head, solved together.
//
// Decays per head do not change keys: they multiply rows of V numbers and the small matrix of pairs. With j, i the
// tokens of a block that starts from S, A_j the product of its decays up to and including j, and D[j, i] the product of
// the decays after i up to and including j:
//     r_j = A_j k_j^T S + sum_{i<j} M[j, i] x_i         M[j, i] = D[j, i] k_j^T k_i         x_j = beta_j (v_j - r_j)
//     y_j = A_j q_j^T S + sum_{i<=j} N[j, i] x_i        N[j, i] = D[j, i] q_j^T k_i
//     S  <- A_last S + sum_i k_i (D[last, i] x_i)^T
// Every decay is a product of given decays, without divisions, so decays may be arbitrarily strong. A reset starts a
// block from zeros, without a product with the old state.
#pragma once

#include "problem.h"

namespace delta {

// The values of a block for both passes. Rows beyond its tokens are zero, with decays of 1.
template <typename T>
struct HeadBlock {
    const Inputs<T>& in;
    const int64_t K;  // padded
    Buffer<T> kq;     // (2 TOKENS, K): k, then q
    Buffer<T> kT;     // (K, TOKENS)
    Buffer<T> pairs;  // (2 TOKENS, TOKENS): M, then N; zero above their diagonals
    alignas(64) T from[TOKENS], to[TOKENS];  // A_j, D[last, j]
    T beta[TOKENS], whole = 1;
    Span span{};
    int64_t rows = 0;  // rows in products: the span's tokens, in whole tiles

    explicit HeadBlock(const Inputs<T>& in_)
        : in(in_), K(padded<T>(in.K)), kq(2 * TOKENS * K), kT(K * TOKENS), pairs(2 * TOKENS * TOKENS),
          decays(2 * TOKENS * TOKENS) {
        const T logs[TOKENS] = {};
        decay(logs);
    }

    static constexpr int64_t SIZE = TOKENS;
    T* k() const { return kq; }
    T* q() const { return kq + TOKENS * K; }
    SIMD_INLINE Vec<T> whole_at(int64_t) const { return Vec<T>(whole); }

    void read(int64_t b, int64_t h, const Span& span_) {
        span = span_;
        rows = (span.length + gemm::ROWS - 1) / gemm::ROWS * gemm::ROWS;
        const int64_t start = in.group(b, span.t0, h) * in.K, stride = in.G * in.K;
        gemm::pack(in.k + start, stride, span.length, in.K, k(), TOKENS, K);
        gemm::pack(in.q + start, stride, span.length, in.K, q(), TOKENS, K);
        T logs[TOKENS] = {};
        for (int64_t j = 0; j < TOKENS; j++) {
            const int64_t at = in.head(b, span.t0 + j, h);
            beta[j] = j < span.length ? in.beta[at] : (T)0;
            if (in.decay == HEAD && j < span.length && !(j == 0 && span.reset)) logs[j] = in.log_decay[at];
        }
        if (in.decay == HEAD) decay(logs);
        gemm::transpose<T>(kq, K, TOKENS, K, kT, TOKENS);
    }

    // Computes `pairs`.
    void score() {
        for (int64_t half = 0; half < 2 * TOKENS; half += TOKENS)
            gemm::for_tiles<T>(rows, TOKENS, [&](auto shape, int64_t i, int64_t j) {
                auto tile = decltype(shape)::Tile::zeros();
                tile.add_product(in.K, kq + (half + i) * K, K, 1, kT + j, TOKENS);
                times_decays(tile, half + i, j);
                tile.store(pairs + (half + i) * TOKENS + j, TOKENS);
            });
    }

    // Writes `pairs` for the backward pass, with rows of M and N next to each other.
    void keep(T* kept) const {
        for (int64_t j = 0; j < span.length; j++, kept += in.kept_row())
            for (int64_t half : {0, 1}) std::copy_n(row(half, j), TOKENS, kept + half * TOKENS);
    }
    // Reads `pairs` in the backward pass.
    void score_again(const T* kept) {
        for (int64_t j = 0; j < span.length; j++, kept += in.kept_row())
            for (int64_t half : {0, 1}) std::copy_n(kept + half * TOKENS, TOKENS, row(half, j));
        for (int64_t half : {0, 1}) std::fill_n(row(half, span.length), (TOKENS - span.length) * TOKENS, (T)0);
    }

    // A tile at (i, j) of a matrix with the shape of `pairs`, times the decays between the two tokens.
    template <typename Tile>
    SIMD_INLINE void times_decays(Tile& tile, int64_t i, int64_t j) const {
        tile.each([&](Vec<T>& x, int r, int64_t l) { x *= Vec<T>::load(decays + (i + r) * TOKENS + j + l); });
    }

private:
    T* row(int64_t half, int64_t j) const { return pairs + (half * TOKENS + j) * TOKENS; }

    void decay(const T* logs) {
        constexpr int64_t W = Vec<T>::width;
        alignas(64) T step[TOKENS], unit[TOKENS] = {};
        T sum = 0;
        for (int64_t j = 0; j < TOKENS; j++) sum += logs[j];
        whole = simd::exp(Vec<T>(sum)).v[0];  // a single rounding, because its errors accumulate over a sequence
        for (int64_t j = 0; j < TOKENS; j += W) simd::exp(Vec<T>::load(logs + j)).store(step + j);
        T product = 1;
        for (int64_t j = 0; j < TOKENS; j++) from[j] = product *= step[j];
        for (int64_t i = 0; i < TOKENS; i += W) {
            Vec<T> row = Vec<T>::zero();  // row of token j, columns i .. i + W
            for (int64_t j = 0; j < TOKENS; j++) {
                row *= Vec<T>(step[j]);
                row.store(decays + j * TOKENS + i);
                unit[j] = 1;
                row += Vec<T>::load(unit + i);
                unit[j] = 0;
                row.store(decays + (TOKENS + j) * TOKENS + i);
            }
            row.store(to + i);
        }
    }

    Buffer<T> decays;  // (2 TOKENS, TOKENS): D below its diagonal, D with the ones on it
};

}  // namespace delta
